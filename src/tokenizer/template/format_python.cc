// Python's two template languages for strings: '%' and str.format (the formatting half of format.h).

#include <cmath>
#include <cstdio>

#include "fmt/format.h"

#include "tokenizer/template/format.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/text_operations.h"
#include "tokenizer/template/unicode.h"

namespace tessera::jinja {
namespace {

constexpr size_t kMaxPrecision = 400;

struct Layout {
  std::string fill = " ";
  char align = '\0';  // '<' '>' '^' '=' or none given
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  size_t width = 0;
  char group = '\0';
  int precision = -1;
  char type = '\0';
};

Status format_error(char type, const Value& value) {
  return type_error(fmt::format("Unknown format code '{}' for object of type '{}'", type, type_name(value)));
}

/// Reads digits at `*pos`; a number beyond any sensible width becomes a limit error.
Result<size_t> read_number(std::string_view text, size_t* pos, size_t limit) {
  size_t number = 0;
  while (*pos < text.size() && text[*pos] >= '0' && text[*pos] <= '9') {
    number = number * 10 + static_cast<size_t>(text[*pos] - '0');
    ++*pos;
    if (number > limit) {
      return limit_error("characters of one formatted field", limit);
    }
  }
  return number;
}

std::string print_real(double value, char type, int precision, bool alternate) {
  if (std::isnan(value) || std::isinf(value)) {
    const std::string text = std::isnan(value) ? "nan" : "inf";
    return type == 'F' || type == 'E' || type == 'G' ? (std::isnan(value) ? "NAN" : "INF") : text;
  }
  const char format[] = {'%', '#', '.', '*', type, '\0'};
  std::string plain(format);
  if (!alternate) {
    plain.erase(1, 1);
  }
  char buffer[1024];  // 309 digits, a point and kMaxPrecision more
  const int n = std::snprintf(buffer, sizeof(buffer), plain.c_str(), precision, value);
  return {buffer, static_cast<size_t>(n)};
}

std::string print_magnitude(uint64_t magnitude, char type, bool alternate) {
  switch (type) {
    case 'x': return fmt::format("{}{:x}", alternate ? "0x" : "", magnitude);
    case 'X': return fmt::format("{}{:X}", alternate ? "0X" : "", magnitude);
    case 'o': return fmt::format("{}{:o}", alternate ? "0o" : "", magnitude);
    case 'b': return fmt::format("{}{:b}", alternate ? "0b" : "", magnitude);
    default: return fmt::format("{}", magnitude);
  }
}

void group_thousands(std::string& digits, char separator) {
  size_t end = 0;
  while (end < digits.size() && digits[end] >= '0' && digits[end] <= '9') {
    ++end;
  }
  for (size_t i = end; i > 3; i -= 3) {
    digits.insert(i - 3, 1, separator);
  }
}

/// The sign-less text of a number and whether it is negative.
Result<std::pair<std::string, bool>> print_number(const Value& value, const Layout& layout) {
  const char type = layout.type;
  const bool real_type = type != '\0' && std::string_view("eEfFgG%").find(type) != std::string_view::npos;
  std::pair<std::string, bool> printed;
  if (value.is_integral() && !real_type) {
    if (type != '\0' && std::string_view("dnxXob").find(type) == std::string_view::npos) {
      return format_error(type, value);
    }
    const int64_t i = value.as_int();
    printed.second = i < 0;
    printed.first =
        print_magnitude(i < 0 ? 0 - static_cast<uint64_t>(i) : static_cast<uint64_t>(i), type, layout.alternate);
  } else if (real_type || type == '\0' || type == 'n') {
    const double d = std::fabs(value.as_real());
    printed.second = std::signbit(value.as_real());
    if (type == '\0' && layout.precision < 0) {
      printed.first = float_repr(d);
    } else if (type == '\0' || type == 'n') {
      printed.first = print_real(d, 'g', layout.precision < 0 ? 6 : layout.precision, layout.alternate);
      if (type == '\0' && printed.first.find_first_of(".en") == std::string::npos) {
        printed.first += ".0";
      }
    } else if (type == '%') {
      printed.first = print_real(d * 100, 'f', layout.precision < 0 ? 6 : layout.precision, layout.alternate) + "%";
    } else {
      printed.first = print_real(d, type, layout.precision < 0 ? 6 : layout.precision, layout.alternate);
    }
  } else {
    return format_error(type, value);
  }
  if (layout.group != '\0') {
    group_thousands(printed.first, layout.group);
  }
  return printed;
}

/// Pads `sign` + `body` to the width.
Status lay_out(Runtime& runtime, const Layout& layout, char default_align, std::string_view sign, bool user,
               const Text& body, Text& out) {
  const size_t length = sign.size() + count_code_points(body.view());
  const size_t padding = layout.width > length ? layout.width - length : 0;
  TRY(runtime.charge_bytes(padding * layout.fill.size() + body.size()));
  const char align = layout.align != '\0' ? layout.align : default_align;
  const size_t left = align == '>' ? padding : align == '^' ? padding / 2 : 0;
  const auto pad = [&](size_t n) { out.append(repeat(Text(layout.fill, false), n)); };
  pad(left);
  out.append(sign, user);
  if (align == '=') {
    pad(padding);
  }
  out.append(body);
  if (align != '=') {
    pad(padding - left);
  }
  return {};
}

Status append_number(Runtime& runtime, const Value& value, const Layout& layout, Text& out) {
  ASSIGN_OR_RETURN(const auto printed, print_number(value, layout));
  const std::string_view sign = printed.second ? "-" : layout.sign == '+' ? "+" : layout.sign == ' ' ? " " : "";
  return lay_out(runtime, layout, layout.zero ? '=' : '>', sign, value.from_user(),
                 Text(printed.first, value.from_user()), out);
}

Result<Layout> parse_specification(Runtime& runtime, std::string_view spec) {
  const std::string_view aligns = "<>^=";
  Layout layout;
  size_t pos = 0;
  if (!spec.empty()) {
    uint32_t c = 0;
    const size_t length = decode(spec, 0, &c);
    if (length < spec.size() && aligns.find(spec[length]) != std::string_view::npos) {
      layout.fill = std::string(spec.substr(0, length));
      layout.align = spec[length];
      pos = length + 1;
    } else if (aligns.find(spec[0]) != std::string_view::npos) {
      layout.align = spec[0];
      pos = 1;
    }
  }
  const auto next_is = [&](std::string_view set) {
    return pos < spec.size() && set.find(spec[pos]) != std::string_view::npos;
  };
  if (next_is("+- ")) {
    layout.sign = spec[pos++];
  }
  if (next_is("#")) {
    layout.alternate = true;
    ++pos;
  }
  if (next_is("0")) {
    layout.zero = true;
    if (layout.align == '\0') {
      layout.fill = "0";
    }
    ++pos;
  }
  ASSIGN_OR_RETURN(layout.width, read_number(spec, &pos, runtime.limits().max_made_bytes));
  if (next_is(",_")) {
    layout.group = spec[pos++];
  }
  if (next_is(".")) {
    ++pos;
    if (!next_is("0123456789")) {
      return type_error("Format specifier missing precision");
    }
    ASSIGN_OR_RETURN(const size_t precision, read_number(spec, &pos, INT32_MAX));
    layout.precision = static_cast<int>(precision);
  }
  if (pos < spec.size()) {
    layout.type = spec[pos++];
  }
  if (pos < spec.size()) {
    return type_error(fmt::format("Invalid format specifier '{}'", spec));
  }
  return layout;
}

/// Cursor over the arguments of one '%' formatting.
struct PercentArgs {
  const Value& args;
  size_t next = 0;

  Result<Value> take() {
    if (args.is(Kind::kTuple)) {
      if (next >= args.items().size()) {
        return type_error("not enough arguments for format string");
      }
      return args.items()[next++];
    }
    if (next > 0) {
      return type_error("not enough arguments for format string");
    }
    ++next;
    return args;
  }

  /// The argument that `(name)` at `*pos` asks for; nullopt when there is no such part.
  Result<std::optional<Value>> take_named(std::string_view text, size_t* pos) {
    if (*pos >= text.size() || text[*pos] != '(') {
      return std::optional<Value>();
    }
    const size_t close = text.find(')', *pos);
    if (close == std::string_view::npos) {
      return type_error("incomplete format key");
    }
    if (!args.is(Kind::kDict)) {
      return type_error("format requires a mapping");
    }
    const std::string_view name = text.substr(*pos + 1, close - *pos - 1);
    const Value* found = args.dict().find_text(name);
    if (found == nullptr) {
      return type_error(fmt::format("'{}'", name));
    }
    next = 1;
    *pos = close + 1;
    return std::optional<Value>(*found);
  }

  [[nodiscard]] bool all_used() const {
    if (args.is(Kind::kTuple)) {
      return next == args.items().size();
    }
    // Python does not insist that a value with subscripts is used, for it might have been meant as a mapping.
    return next > 0 || args.is(Kind::kDict) || args.is(Kind::kList) || args.is(Kind::kRange) ||
           args.is(Kind::kUndefined);
  }
};

/// Reads flags, width, precision and type at `*pos`.
Result<Layout> parse_percent_layout(Runtime& runtime, std::string_view text, size_t* pos) {
  Layout layout;
  for (; *pos < text.size() && std::string_view("-+ #0").find(text[*pos]) != std::string_view::npos; ++*pos) {
    const char flag = text[*pos];
    layout.align = flag == '-' ? '<' : layout.align;
    layout.sign = flag == '+' || (flag == ' ' && layout.sign != '+') ? flag : layout.sign;
    layout.alternate = layout.alternate || flag == '#';
    layout.zero = layout.zero || flag == '0';
  }
  ASSIGN_OR_RETURN(layout.width, read_number(text, pos, runtime.limits().max_made_bytes));
  if (*pos < text.size() && text[*pos] == '.') {
    ++*pos;
    ASSIGN_OR_RETURN(const size_t precision, read_number(text, pos, INT32_MAX));
    layout.precision = static_cast<int>(precision);
  }
  if (*pos >= text.size()) {
    return type_error("incomplete format");
  }
  layout.type = text[(*pos)++];
  return layout;
}

Status append_percent_field(Runtime& runtime, const Value& value, Layout layout, Text& out) {
  const char type = layout.type;
  const char text_align = layout.align == '<' ? '<' : '>';
  if (type == 's' || type == 'r' || type == 'a') {
    Text body;
    TRY(type == 's' ? append_str(runtime, value, body) : append_repr(runtime, value, body));
    if (layout.precision >= 0) {
      body = body.slice(0, offset_of(body.view(), static_cast<size_t>(layout.precision)));
    }
    layout.fill = " ";
    return lay_out(runtime, layout, text_align, "", false, body, out);
  }
  if (type == 'c') {
    Text body;
    if (value.is(Kind::kString) && count_code_points(value.text().view()) == 1) {
      body = value.text();
    } else if (value.is_integral() && value.as_int() >= 0 && value.as_int() <= 0x10FFFF) {
      std::string bytes;
      encode(static_cast<uint32_t>(value.as_int()), bytes);
      body = Text(bytes, value.from_user());
    } else {
      return type_error("%c requires int or char");
    }
    layout.fill = " ";
    return lay_out(runtime, layout, text_align, "", false, body, out);
  }
  if (std::string_view("diuxXoeEfFgG").find(type) == std::string_view::npos) {
    return type_error(fmt::format("unsupported format character '{}'", type));
  }
  const bool integer_type = std::string_view("diuxXo").find(type) != std::string_view::npos;
  if (!value.is_number() || (std::string_view("xXo").find(type) != std::string_view::npos && !value.is_integral())) {
    return type_error(fmt::format("%{} format: a {} is required, not {}", type, integer_type ? "real number" : "number",
                                  type_name(value)));
  }
  if (layout.precision > static_cast<int>(kMaxPrecision)) {
    return limit_error("digits of one formatted number", kMaxPrecision);
  }
  Value number = value;
  if (integer_type && value.is(Kind::kFloat)) {
    if (!(std::fabs(value.as_real()) < 9.2e18)) {
      return type_error("cannot convert float to integer");
    }
    number = Value::integer(static_cast<int64_t>(value.as_real()), value.from_user());
  }
  layout.type = type == 'i' || type == 'u' ? 'd' : type;
  if (layout.zero && layout.align != '<') {
    layout.fill = "0";
    layout.align = '=';
  }
  return append_number(runtime, number, layout, out);
}

/// Reads one `{…}` field body into name, conversion and specification.
struct Field {
  std::string_view name;
  char conversion = '\0';
  std::string_view specification;
};

Result<Field> split_field(std::string_view body) {
  Field field;
  size_t bracket = 0;
  size_t end = 0;
  for (; end < body.size(); ++end) {
    bracket += body[end] == '[' ? 1U : 0U;
    bracket -= body[end] == ']' && bracket > 0 ? 1U : 0U;
    if (bracket == 0 && (body[end] == '!' || body[end] == ':')) {
      break;
    }
  }
  field.name = body.substr(0, end);
  std::string_view rest = body.substr(end);
  if (!rest.empty() && rest[0] == '!') {
    if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) {
      return type_error("expected ':' after conversion specifier");
    }
    field.conversion = rest[1];
    rest.remove_prefix(2);
  }
  field.specification = rest.empty() ? rest : rest.substr(1);
  return field;
}

bool all_digits(std::string_view text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const CallArgs& args) : runtime_(runtime), args_(args) {}

  Status append(const Text& format, size_t begin, size_t end, int nesting, Text& out) {
    if (nesting > 2) {
      return type_error("Max string recursion exceeded");
    }
    const std::string_view text = format.view();
    size_t pos = begin;
    while (pos < end) {
      const char c = text[pos];
      if (c != '{' && c != '}') {
        const size_t stop = std::min(text.find_first_of("{}", pos), end);
        out.append(format, pos, stop);
        pos = stop;
      } else if (pos + 1 < end && text[pos + 1] == c) {
        out.append(format, pos, pos + 1);
        pos += 2;
      } else if (c == '}') {
        return type_error("Single '}' encountered in format string");
      } else {
        const size_t close = matching_brace(text, pos + 1, end);
        if (close == end) {
          return type_error("expected '}' before end of string");
        }
        TRY(append_field(format, pos + 1, close, nesting, out));
        pos = close + 1;
      }
    }
    return {};
  }

 private:
  static size_t matching_brace(std::string_view text, size_t pos, size_t end) {
    size_t depth = 1;
    for (; pos < end; ++pos) {
      depth += text[pos] == '{' ? 1U : 0U;
      depth -= text[pos] == '}' ? 1U : 0U;
      if (depth == 0) {
        return pos;
      }
    }
    return end;
  }

  Result<Value> positional(size_t i) {
    if (i >= args_.positional.size()) {
      return type_error("Replacement index " + std::to_string(i) + " out of range for positional args tuple");
    }
    return args_.positional[i];
  }

  Result<Value> first_part(std::string_view name) {
    if (name.empty()) {
      return positional(next_++);
    }
    if (all_digits(name)) {
      return positional(static_cast<size_t>(std::stoul(std::string(name))));
    }
    for (const auto& [key, value] : args_.named) {
      if (key == name) {
        return value;
      }
    }
    return type_error(fmt::format("'{}'", name));
  }

  Result<Value> look_up(std::string_view name) {
    size_t end = std::min(name.find_first_of(".["), name.size());
    ASSIGN_OR_RETURN(Value value, first_part(name.substr(0, end)));
    while (end < name.size()) {
      const bool item = name[end] == '[';
      const size_t begin = end + 1;
      end = item ? name.find(']', begin) : std::min(name.find_first_of(".[", begin), name.size());
      if (end == std::string_view::npos) {
        return type_error("Missing ']' in format string");
      }
      const std::string_view part = name.substr(begin, end - begin);
      if (item && all_digits(part)) {
        const Value index = Value::integer(std::stol(std::string(part)));
        ASSIGN_OR_RETURN(value, get_item(runtime_, value, index));
      } else {
        ASSIGN_OR_RETURN(value, get_attribute(runtime_, value, part));
      }
      end += item ? 1 : 0;
    }
    return value;
  }

  Status append_field(const Text& format, size_t begin, size_t end, int nesting, Text& out) {
    ASSIGN_OR_RETURN(const Field field, split_field(format.view().substr(begin, end - begin)));
    ASSIGN_OR_RETURN(Value value, look_up(field.name));
    Text specification;
    const size_t at = end - field.specification.size();
    TRY(append(format, at, end, nesting + 1, specification));
    if (field.conversion != '\0') {
      Text converted;
      if (field.conversion == 's') {
        TRY(append_str(runtime_, value, converted));
      } else if (field.conversion == 'r' || field.conversion == 'a') {
        TRY(append_repr(runtime_, value, converted));
      } else {
        return type_error(fmt::format("Unknown conversion specifier {}", field.conversion));
      }
      ASSIGN_OR_RETURN(value, runtime_.string(std::move(converted)));
    }
    return append_formatted(runtime_, value, specification.view(), out);
  }

  Runtime& runtime_;
  const CallArgs& args_;
  size_t next_ = 0;
};

}  // namespace

Status append_formatted(Runtime& runtime, const Value& value, std::string_view specification, Text& out) {
  if (specification.empty()) {
    return append_str(runtime, value, out);
  }
  ASSIGN_OR_RETURN(Layout layout, parse_specification(runtime, specification));
  if (value.is_number()) {
    if (layout.precision > static_cast<int>(kMaxPrecision)) {
      return limit_error("digits of one formatted number", kMaxPrecision);
    }
    return append_number(runtime, value, layout, out);
  }
  if (!value.is(Kind::kString)) {
    return type_error(fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
  }
  if ((layout.type != '\0' && layout.type != 's') || layout.align == '=' || layout.group != '\0') {
    return format_error(layout.type, value);
  }
  const Text& text = value.text();
  const size_t shown =
      layout.precision < 0 ? text.size() : offset_of(text.view(), static_cast<size_t>(layout.precision));
  return lay_out(runtime, layout, '<', "", false, text.slice(0, shown), out);
}

Result<Value> percent_format(Runtime& runtime, const Text& format, const Value& args) {
  const std::string_view text = format.view();
  PercentArgs arguments{args};
  Text out;
  size_t pos = 0;
  while (pos < text.size()) {
    const size_t percent = std::min(text.find('%', pos), text.size());
    out.append(format, pos, percent);
    pos = percent + 1;
    if (percent == text.size()) {
      break;
    }
    TRY(runtime.charge_steps(1));
    ASSIGN_OR_RETURN(std::optional<Value> value, arguments.take_named(text, &pos));
    ASSIGN_OR_RETURN(const Layout layout, parse_percent_layout(runtime, text, &pos));
    if (layout.type == '%') {
      out.append(format, pos - 1, pos);
      continue;
    }
    if (!value.has_value()) {
      ASSIGN_OR_RETURN(value, arguments.take());
    }
    TRY(append_percent_field(runtime, *value, layout, out));
  }
  if (!arguments.all_used()) {
    return type_error("not all arguments converted during string formatting");
  }
  return runtime.string(std::move(out));
}

Result<Value> brace_format(Runtime& runtime, const Text& format, const CallArgs& args) {
  Text out;
  TRY(BraceFormatter(runtime, args).append(format, 0, format.size(), 0, out));
  return runtime.string(std::move(out));
}

}  // namespace tessera::jinja

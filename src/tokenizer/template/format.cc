#include "tokenizer/template/format.h"

#include <charconv>
#include <cmath>

#include "fmt/format.h"

#include "tokenizer/template/unicode.h"

namespace tessera::jinja {
namespace {

void append_repr_of_text(const Text& text, Text& out) {
  const bool quotes_inside = text.bytes().find('\'') != std::string::npos;
  const char quote = quotes_inside && text.bytes().find('"') == std::string::npos ? '"' : '\'';
  const bool edge_origin = text.from_user_at(0);
  out.append(std::string_view(&quote, 1), edge_origin);
  text.for_each_run(0, text.size(), [&](std::string_view run, bool from_user) {
    std::string escaped;
    uint32_t c = 0;
    for (size_t pos = 0; pos < run.size();) {
      const size_t length = decode(run, pos, &c);
      if (c == '\\' || c == static_cast<uint32_t>(quote)) {
        escaped += '\\';
        escaped += static_cast<char>(c);
      } else if (c == '\n' || c == '\r' || c == '\t') {
        escaped += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
      } else if (is_printable(c)) {
        escaped.append(run.substr(pos, length));
      } else if (c < 0x100) {
        escaped += fmt::format("\\x{:02x}", c);
      } else if (c < 0x10000) {
        escaped += fmt::format("\\u{:04x}", c);
      } else {
        escaped += fmt::format("\\U{:08x}", c);
      }
      pos += length;
    }
    out.append(escaped, from_user);
  });
  out.append(std::string_view(&quote, 1), text.empty() ? edge_origin : text.from_user_at(text.size() - 1));
}

Status append_repr_at(Runtime& runtime, const Value& value, Text& out, size_t depth);

Status append_items(Runtime& runtime, const Value& value, std::string_view open, std::string_view close, Text& out,
                    size_t depth) {
  const bool user = value.from_user();
  out.append(open, user);
  bool first = true;
  for (const Value& item : value.items()) {
    if (!first) {
      out.append(", ", user);
    }
    first = false;
    TRY(append_repr_at(runtime, item, out, depth + 1));
  }
  out.append(close, user);
  return {};
}

Status append_entries(Runtime& runtime, const Value& value, Text& out, size_t depth) {
  const bool user = value.from_user();
  out.append("{", user);
  bool first = true;
  for (const auto& [key, item] : value.dict().entries) {
    if (!first) {
      out.append(", ", user);
    }
    first = false;
    TRY(append_repr_at(runtime, key, out, depth + 1));
    out.append(": ", user);
    TRY(append_repr_at(runtime, item, out, depth + 1));
  }
  out.append("}", user);
  return {};
}

std::string object_repr(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone: return "None";
    case Kind::kBool: return value.as_bool() ? "True" : "False";
    case Kind::kInt: return fmt::format("{}", value.as_int());
    case Kind::kFloat: return float_repr(value.as_real());
    case Kind::kRange: {
      const RangeObject& range = value.range();
      return range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                             : fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
    }
    case Kind::kLoop: return fmt::format("<LoopContext {}/{}>", value.loop().index0 + 1, value.loop().items.size());
    case Kind::kCallable: return value.callable().description;
    case Kind::kIterator: return "<generator object>";
    default: return "Undefined";
  }
}

Status append_repr_at(Runtime& runtime, const Value& value, Text& out, size_t depth) {
  const size_t before = out.size();
  TRY(runtime.charge_steps(1));
  if (depth > runtime.limits().max_containers) {
    return limit_error("containers within containers", runtime.limits().max_containers);
  }
  switch (value.kind()) {
    case Kind::kString:
      TRY(runtime.charge_bytes(value.text().size()));
      append_repr_of_text(value.text(), out);
      return {};
    case Kind::kList: return append_items(runtime, value, "[", "]", out, depth);
    case Kind::kTuple: return append_items(runtime, value, "(", value.items().size() == 1 ? ",)" : ")", out, depth);
    case Kind::kView:
      out.append(value.list().view_name, value.from_user());
      return append_items(runtime, value, "([", "])", out, depth);
    case Kind::kDict: return append_entries(runtime, value, out, depth);
    case Kind::kNamespace:
      out.append("<Namespace ", value.from_user());
      TRY(append_entries(runtime, value, out, depth));
      out.append(">", value.from_user());
      return {};
    default: out.append(object_repr(value), value.from_user());
  }
  return runtime.charge_bytes(out.size() - before);
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value < 0 ? "-inf" : "inf";
  }
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t e = shortest.find('e');
  int exponent = 0;
  std::from_chars(shortest.data() + e + (shortest[e + 1] == '+' ? 2 : 1), end.ptr, exponent);
  if (exponent < -4 || exponent >= 16) {
    return std::string(shortest);  // C++ and Python agree on at least two digits of exponent
  }
  std::string digits;
  for (const char c : shortest.substr(0, e)) {
    if (c >= '0' && c <= '9') {
      digits += c;
    }
  }
  const std::string sign = value < 0 || std::signbit(value) ? "-" : "";
  if (exponent < 0) {
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  const auto whole = static_cast<size_t>(exponent + 1);
  if (digits.size() <= whole) {
    return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  }
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

Status append_repr(Runtime& runtime, const Value& value, Text& out) {
  return append_repr_at(runtime, value, out, 0);
}

Status append_str(Runtime& runtime, const Value& value, Text& out) {
  if (value.is(Kind::kUndefined)) {
    return {};
  }
  if (value.is(Kind::kString)) {
    TRY(runtime.charge_bytes(value.text().size()));
    out.append(value.text());
    return {};
  }
  return append_repr(runtime, value, out);
}

Result<Text> to_text(Runtime& runtime, const Value& value) {
  Text text;
  TRY(append_str(runtime, value, text));
  return text;
}

}  // namespace tessera::jinja

// Filters on single values: defaults, numbers, JSON, attributes.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "fmt/format.h"

#include "tokenizer/template/format.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/text_operations.h"

namespace tessera::jinja {
namespace {

Result<Value> filter_default(Runtime& /*runtime*/, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("default", args, {"default_value", "boolean"}));
  if (self.is(Kind::kUndefined) || (bound.flag(1, false) && !is_true(self))) {
    return bound.has(0) ? bound[0] : Value(Kind::kString, std::make_shared<TextObject>(Text()));
  }
  return self;
}

Result<Value> filter_abs(Runtime& /*runtime*/, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("abs", args, {}).status());
  if (!self.is_number()) {
    return type_error(fmt::format("bad operand type for abs(): '{}'", type_name(self)));
  }
  if (self.is(Kind::kFloat)) {
    return Value::real(std::fabs(self.as_real()), self.from_user());
  }
  return self.as_int() < 0 ? negate(self) : Value::integer(self.as_int(), self.from_user());
}

/// Text of a number without spaces around it and underscores between digits; nullopt when underscores are misplaced.
std::optional<std::string> bare_number(const Text& text) {
  const Text stripped = strip(text, nullptr, true, true);
  std::string bare;
  const std::string& bytes = stripped.bytes();
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '_') {
      bare += bytes[i];
    } else if (i == 0 || i + 1 == bytes.size() || std::isxdigit(static_cast<unsigned char>(bytes[i - 1])) == 0 ||
               std::isxdigit(static_cast<unsigned char>(bytes[i + 1])) == 0) {
      return std::nullopt;
    }
  }
  return bare;
}

/// float(text) of Python; nullopt where it raises ValueError.
std::optional<double> parse_real(const Text& text) {
  const std::optional<std::string> bare = bare_number(text);
  if (!bare.has_value() || bare->empty()) {
    return std::nullopt;
  }
  std::string_view digits = *bare;
  const bool negative = digits[0] == '-';
  if (digits[0] == '-' || digits[0] == '+') {
    digits.remove_prefix(1);
  }
  const bool starts_well = !digits.empty() && digits[0] != '-' && digits[0] != '+';
  double value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const std::string_view rest(parsed.ptr, static_cast<size_t>(digits.data() + digits.size() - parsed.ptr));
  if (!starts_well || !rest.empty() || digits.find('(') != std::string_view::npos) {
    return std::nullopt;
  }
  if (parsed.ec == std::errc::result_out_of_range) {
    value = std::strtod(std::string(digits).c_str(), nullptr);
  } else if (parsed.ec != std::errc()) {
    return std::nullopt;
  }
  return negative ? -value : value;
}

/// int(text, base) of Python; nullopt where it raises ValueError.
Result<std::optional<int64_t>> parse_integer(const Text& text, int64_t base) {
  const std::optional<std::string> bare = bare_number(text);
  const std::optional<int64_t> failed;
  if (!bare.has_value() || bare->empty() || base < 0 || base > 36 || base == 1) {
    return failed;
  }
  std::string_view digits = *bare;
  const bool negative = digits[0] == '-';
  if (digits[0] == '-' || digits[0] == '+') {
    digits.remove_prefix(1);
  }
  if (digits.size() > 2 && digits[0] == '0') {
    const char prefix = static_cast<char>(digits[1] | 0x20);
    const int64_t implied = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    if (implied != 0 && (base == implied || base == 0)) {
      base = implied;
      digits.remove_prefix(2);
    }
  }
  uint64_t magnitude = 0;
  const auto parsed =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base == 0 ? 10 : static_cast<int>(base));
  if (digits.empty() || parsed.ptr != digits.data() + digits.size() || parsed.ec == std::errc::invalid_argument) {
    return failed;
  }
  if (parsed.ec != std::errc() || magnitude > static_cast<uint64_t>(INT64_MAX)) {
    return Status(ErrorCode::kUnsupported, "an integer of the template exceeds the limit of 64 bits");
  }
  return std::optional<int64_t>(negative ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude));
}

Result<Value> integer_of_real(double d, bool from_user) {
  if (std::isnan(d) || std::isinf(d)) {
    return type_error("cannot convert float infinity or NaN to integer");
  }
  if (std::fabs(d) >= 9.2e18) {
    return Status(ErrorCode::kUnsupported, "an integer of the template exceeds the limit of 64 bits");
  }
  return Value::integer(static_cast<int64_t>(d), from_user);
}

Result<Value> filter_int(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("int", args, {"default", "base"}));
  ASSIGN_OR_RETURN(const int64_t base, bound.integer(1, 10));
  if (self.is(Kind::kUndefined)) {
    return type_error(self.undefined_message());
  }
  if (self.is_integral()) {
    return Value::integer(self.as_int(), self.from_user());
  }
  if (self.is(Kind::kFloat)) {
    if (std::isnan(self.as_real())) {
      return bound.has(0) ? bound[0] : Value::integer(0);
    }
    return integer_of_real(self.as_real(), self.from_user());
  }
  if (self.is(Kind::kString)) {
    TRY(runtime.charge_scan(self.text().size()));
    ASSIGN_OR_RETURN(const std::optional<int64_t> whole, parse_integer(self.text(), base));
    if (whole.has_value()) {
      return Value::integer(*whole, self.from_user());
    }
    const std::optional<double> real = parse_real(self.text());
    if (real.has_value() && !std::isnan(*real)) {
      return integer_of_real(*real, self.from_user());
    }
  }
  return bound.has(0) ? bound[0] : Value::integer(0);
}

Result<Value> filter_float(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("float", args, {"default"}));
  if (self.is(Kind::kUndefined)) {
    return type_error(self.undefined_message());
  }
  if (self.is_number()) {
    return Value::real(self.as_real(), self.from_user());
  }
  if (self.is(Kind::kString)) {
    TRY(runtime.charge_scan(self.text().size()));
    const std::optional<double> real = parse_real(self.text());
    if (real.has_value()) {
      return Value::real(*real, self.from_user());
    }
  }
  return bound.has(0) ? bound[0] : Value::real(0.0);
}

/// Python's round(): to the nearest, ties to even, exact in decimal.
double round_real(double value, int64_t precision) {
  if (std::isnan(value) || std::isinf(value) || precision > 300) {
    return value;
  }
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::isinf(scale) ? std::copysign(0.0, value) : std::nearbyint(value / scale) * scale;
  }
  char buffer[720];  // 309 digits, a point and 300 more
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(precision), value);
  return std::strtod(buffer, nullptr);
}

Result<Value> filter_round(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("round", args, {"precision", "method"}));
  ASSIGN_OR_RETURN(const int64_t precision, bound.integer(0, 0));
  if (!self.is_number()) {
    return type_error(fmt::format("type {} doesn't define __round__ method", type_name(self)));
  }
  std::string method = "common";
  if (bound.has(1)) {
    ASSIGN_OR_RETURN(const Text* given, bound.text(1));
    method = given->bytes();
  }
  if (method != "common" && method != "ceil" && method != "floor") {
    return type_error("method must be common, ceil or floor");
  }
  const bool user = self.from_user();
  if (method == "common") {
    if (self.is(Kind::kFloat)) {
      return Value::real(round_real(self.as_real(), precision), user);
    }
    const double rounded = precision < 0 ? round_real(self.as_real(), precision) : 0;
    return Value::integer(precision < 0 ? static_cast<int64_t>(rounded) : self.as_int(), user);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = self.as_real() * scale;
  ASSIGN_OR_RETURN(const Value whole, integer_of_real(method == "ceil" ? std::ceil(scaled) : std::floor(scaled), user));
  return binary(runtime, BinaryOp::kDivide, whole,
                precision < 0 ? Value::real(scale) : Value::integer(static_cast<int64_t>(scale)));
}

Result<JsonStyle> json_style(Runtime& runtime, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  if (bound.has(1) && !bound[1].is(Kind::kNone)) {
    style.multi_line = true;
    style.item_separator = ",";
    if (bound[1].is(Kind::kString)) {
      style.indent = bound[1].text().bytes();
    } else {
      ASSIGN_OR_RETURN(const int64_t width, bound.integer(1, 0));
      ASSIGN_OR_RETURN(const Text indent, pad(runtime, Text(), width, '<', Text(" ", false)));
      style.indent = indent.bytes();
    }
  }
  if (bound.has(2) && !bound[2].is(Kind::kNone)) {
    ASSIGN_OR_RETURN(const std::vector<Value> parts, runtime.elements(bound[2]));
    if (parts.size() != 2 || !parts[0].is(Kind::kString) || !parts[1].is(Kind::kString)) {
      return type_error("separators must be two strings");
    }
    style.item_separator = parts[0].text().bytes();
    style.key_separator = parts[1].text().bytes();
  }
  return style;
}

Result<Value> filter_tojson(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const JsonStyle style, json_style(runtime, args));
  Text out;
  TRY(append_json(runtime, self, style, out));
  return runtime.string(std::move(out));
}

Result<Value> filter_from_json(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("from_json", args, {}).status());
  if (!self.is(Kind::kString)) {
    return type_error(fmt::format("the JSON object must be str, not {}", type_name(self)));
  }
  return parse_json(runtime, self.text().view(), self.from_user());
}

Result<Value> filter_attr(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("attr", args, {"name"}, 1));
  ASSIGN_OR_RETURN(const Text* name, bound.text(0));
  if (self.is(Kind::kDict) && find_method(self, name->view()) == nullptr) {
    return Value::undefined(fmt::format("'dict object' has no attribute '{}'", name->bytes()));
  }
  return get_attribute(runtime, self, name->view());
}

}  // namespace

const LibraryEntry kValueFilters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"d", filter_default},
    {"default", filter_default},
    {"float", filter_float},
    {"from_json", filter_from_json},
    {"fromjson", filter_from_json},
    {"int", filter_int},
    {"round", filter_round},
    {"tojson", filter_tojson},
    {"", nullptr},
};

}  // namespace tessera::jinja

#include "server/request_fields.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_error.h"
#include "base/json_limits.h"

namespace tessera {
namespace {

Status bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

// What a number is, for messages.
std::string shown(const Json& json) {
  return json.is_number() ? json.dump() : std::string(json_kind(json));
}

// " from 0 to 9"; a largest number that only the type sets is left out where it was not passed.
std::string range_text(int64_t min, int64_t max, bool is_passed) {
  if (max < std::numeric_limits<int32_t>::max() || is_passed) {
    return fmt::format(" from {} to {}", min, max);
  }
  return min == std::numeric_limits<int64_t>::min() ? "" : fmt::format(" of at least {}", min);
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  TRY(check_json_limits(text, {kJsonDepthMax, kJsonMembersMax}));
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    return bad(fmt::format("the body is no valid JSON: {}", json_error_reason(error.what())));
  }
}

Result<Json> parse_json_object(std::string_view text) {
  ASSIGN_OR_RETURN(Json json, parse_json(text));
  if (!json.is_object()) {
    return bad(fmt::format("the body is {}; it must be a JSON object", json_kind(json)));
  }
  return json;
}

std::string dump_json(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string_view json_kind(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "an array";
    case Json::value_t::string: return "a string";
    case Json::value_t::boolean: return "a boolean";
    default: return "a number";
  }
}

const Json* Fields::find(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string Fields::label(std::string_view name) const {
  return path_.empty() ? fmt::format("field \"{}\"", name) : fmt::format("field \"{}.{}\"", path_, name);
}

Status Fields::wrong(std::string_view name, const Json& found, std::string_view wanted) const {
  return bad(fmt::format("{} is {}; it must be {}", label(name), shown(found), wanted));
}

Status Fields::read(std::string_view name, bool& target) const {
  if (const Json* found = find(name)) {
    if (!found->is_boolean()) {
      return wrong(name, *found, "true or false");
    }
    target = found->get<bool>();
  }
  return {};
}

Status Fields::read(std::string_view name, std::string& target) const {
  if (const Json* found = find(name)) {
    if (!found->is_string()) {
      return wrong(name, *found, "a string");
    }
    target = found->get_ref<const std::string&>();
  }
  return {};
}

Status Fields::read(std::string_view name, int64_t& target, int64_t min, int64_t max) const {
  const Json* found = find(name);
  if (found == nullptr) {
    return {};
  }
  const auto out_of_range = [&] {
    const bool is_passed = found->is_number() && found->get<double>() > static_cast<double>(max);
    return wrong(name, *found, "a whole number" + range_text(min, max, is_passed));
  };
  if (found->is_number_unsigned()) {
    if (max < 0 || found->get<uint64_t>() > static_cast<uint64_t>(max)) {
      return out_of_range();
    }
  } else if (found->is_number_float()) {
    const double value = found->get<double>();
    constexpr double kExact = 9007199254740992.0;  // 2^53
    if (!(std::abs(value) <= kExact) || value != std::trunc(value)) {
      return out_of_range();
    }
  } else if (!found->is_number_integer()) {
    return out_of_range();
  }
  const auto value = found->get<int64_t>();
  if (value < min || value > max) {
    return out_of_range();
  }
  target = value;
  return {};
}

Status Fields::read(std::string_view name, int32_t& target, int32_t min, int32_t max) const {
  int64_t value = target;
  TRY(read(name, value, int64_t{min}, int64_t{max}));
  target = static_cast<int32_t>(value);
  return {};
}

Status Fields::read(std::string_view name, double& target, double min, double max) const {
  if (const Json* found = find(name)) {
    const double value = found->is_number() ? found->get<double>() : std::nan("");
    if (!(value >= min && value <= max)) {
      return wrong(name, *found, fmt::format("a number from {} to {}", min, max));
    }
    target = value;
  }
  return {};
}

Status Fields::read(std::string_view name, std::vector<std::string>& target) const {
  const Json* found = find(name);
  if (found == nullptr) {
    return {};
  }
  std::vector<std::string> texts;
  const bool is_list = found->is_array();
  for (const Json& text : is_list ? *found : Json::array({*found})) {
    if (!text.is_string()) {
      return wrong(name, text, is_list ? "an array of strings alone" : "a string or an array of strings");
    }
    texts.push_back(text.get<std::string>());
  }
  target = std::move(texts);
  return {};
}

}  // namespace tessera

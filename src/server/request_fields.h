#pragma once
// Requests' JSON, which anybody may have written: parsing within limits, and reading of fields that names what is
// wrong.
//
// Limits keep work linear and stacks short: levels of nesting, members of one object (which are found by looking at all
// of them). Errors are kInvalidArgument with a sentence that names the field, what it is and what it must be.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

using Json = nlohmann::ordered_json;

inline constexpr size_t kJsonDepthMax = 128;
inline constexpr size_t kJsonMembersMax = 1024;  // of one object

/// Errors: kInvalidArgument: no JSON, or beyond a limit; says where.
Result<Json> parse_json(std::string_view text);
/// The same of a text that must be an object.
Result<Json> parse_json_object(std::string_view text);

/// One line; bytes that are no UTF-8 become U+FFFD. REQUIRES: nested as parse_json() allows, or made by us.
std::string dump_json(const Json& json);

/// "a string", "an object", ...
std::string_view json_kind(const Json& json);

/// Reader of one object. Readers leave their target as it is where the field is missing or null.
class Fields {
 public:
  /// path: what the object is called in messages, "" for the body itself. REQUIRES: object is one, and outlives this.
  explicit Fields(const Json& object, std::string path = "") : object_(object), path_(std::move(path)) {}

  /// The field, or null where it is missing or null.
  [[nodiscard]] const Json* find(std::string_view name) const;
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }

  Status read(std::string_view name, bool& target) const;
  Status read(std::string_view name, std::string& target) const;
  /// Whole numbers, also when written as 5.0.
  Status read(std::string_view name, int64_t& target, int64_t min, int64_t max) const;
  Status read(std::string_view name, int32_t& target, int32_t min, int32_t max) const;
  Status read(std::string_view name, double& target, double min, double max) const;
  /// A string, or an array of strings.
  Status read(std::string_view name, std::vector<std::string>& target) const;

  /// "field `name`", with the path before it.
  [[nodiscard]] std::string label(std::string_view name) const;
  /// "field `name` is a string; it must be `wanted`".
  [[nodiscard]] Status wrong(std::string_view name, const Json& found, std::string_view wanted) const;

 private:
  const Json& object_;
  std::string path_;
};

}  // namespace tessera

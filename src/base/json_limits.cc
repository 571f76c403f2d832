#include "base/json_limits.h"

#include <fmt/format.h>
#include <vector>

namespace tessera {

Status check_json_limits(std::string_view text, const JsonLimits& limits) {
  std::vector<size_t> n_members;  // of the brackets that are open
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (n_members.size() == limits.n_levels) {
        return {ErrorCode::kInvalidArgument,
                fmt::format("the JSON is nested more than {} levels deep, at byte {}", limits.n_levels, i)};
      }
      n_members.push_back(0);
    } else if ((c == '}' || c == ']') && !n_members.empty()) {
      n_members.pop_back();
    } else if (c == ':' && !n_members.empty() && ++n_members.back() > limits.n_members) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("an object has more than {} members, at byte {}", limits.n_members, i)};
    }
  }
  return {};
}

}  // namespace tessera

#pragma once
// What a JSON parser says of a text that is no JSON.

#include <string_view>

namespace tessera {

/// Of an exception's text, "[json.exception.parse_error.101] parse error at line 1, column 5: ...", what people
/// need: from "parse error" on, at most 300 bytes. Points into `what`.
inline std::string_view json_error_reason(std::string_view what) {
  const size_t end_of_name = what.find("] ");
  if (end_of_name != std::string_view::npos) {
    what.remove_prefix(end_of_name + 2);
  }
  return what.substr(0, 300);
}

}  // namespace tessera

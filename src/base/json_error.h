#pragma once
// What a JSON parser says of a text that is no JSON.

#include <algorithm>
#include <string_view>

namespace tessera {

/// Of an exception's text, "[json.exception.parse_error.101] parse error at line 1, column 5: ...", what people
/// need: from "parse error" on, at most 300 bytes. Points into `what`.
inline std::string_view json_error_reason(std::string_view what) {
  const size_t end_of_name = what.find("] ");
  if (end_of_name != std::string_view::npos) {
    what.remove_prefix(end_of_name + 2);
  }
  size_t end = std::min<size_t>(what.size(), 300);
  while (end < what.size() && (static_cast<unsigned char>(what[end]) & 0xC0U) == 0x80) {
    --end;  // a character's start
  }
  return what.substr(0, end);
}

}  // namespace tessera

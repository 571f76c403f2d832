#pragma once
// Looking for marks in text of which more may come.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

namespace tessera {

inline constexpr std::string_view kBlanks = " \t\r\n";

inline std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

/// Bytes at the end of text that may yet become one of the marks; empty ones are none.
inline size_t held_back(std::string_view text, std::span<const std::string_view> marks) {
  size_t most = 0;
  for (const std::string_view mark : marks) {
    for (size_t n = mark.empty() ? 0 : std::min(mark.size() - 1, text.size()); n > most; --n) {
      if (text.ends_with(mark.substr(0, n))) {
        most = n;
      }
    }
  }
  return most;
}

struct FoundMark {
  size_t at = std::string_view::npos;
  size_t mark = 0;  // index
};

/// The mark that stands first.
inline FoundMark find_first(std::string_view text, std::span<const std::string_view> marks) {
  FoundMark found;
  for (size_t i = 0; i < marks.size(); ++i) {
    const size_t at = marks[i].empty() ? std::string_view::npos : text.find(marks[i]);
    if (at < found.at) {
      found = {at, i};
    }
  }
  return found;
}

}  // namespace tessera

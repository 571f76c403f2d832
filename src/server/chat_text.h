#pragma once
// Looking for marks in text of which more may come.

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

/// Looks for one mark after another in a text that grows meanwhile. What was looked at for a mark is not looked at
/// again, so that an answer of many pieces costs no more than one in one.
class MarkSearch {
 public:
  /// Where the mark begins, at `from` or later; npos: not yet, and the next call asks for the same.
  size_t find(std::string_view text, std::string_view mark, size_t from) {
    from = std::min(std::max(from, n_done_), text.size());
    const size_t at = text.find(mark, from);
    n_bytes_ += std::min(at, text.size()) - from;
    n_done_ = at == std::string_view::npos ? text.size() - std::min(text.size(), mark.size() - 1) : 0;
    return at;
  }
  /// Forgets a mark that was not found.
  void reset() { n_done_ = 0; }
  /// Looked at by all calls.
  [[nodiscard]] uint64_t n_bytes() const { return n_bytes_; }

 private:
  size_t n_done_ = 0;  // where the mark does not begin
  uint64_t n_bytes_ = 0;
};

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

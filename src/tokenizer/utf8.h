#pragma once
// The little of UTF-8 that both tokenizers need. What is a valid sequence is decided by utf8proc.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// U+2581, which vocabularies write for a space.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

/// Bytes of the character that a lead byte announces, 1 to 4; 1 for bytes that lead nothing.
inline size_t utf8_announced_bytes(char lead) {
  static constexpr uint8_t kBytes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
  return kBytes[static_cast<uint8_t>(lead) >> 4];
}

/// Bytes of the valid UTF-8 character at the start of text; 0 if there is none.
size_t utf8_valid_bytes(std::string_view text);

/// Whether all of text is UTF-8.
bool utf8_is_valid(std::string_view text);

/// How many bytes at the end of text are the beginning of a character that more bytes could complete, 0 to 3.
size_t utf8_unfinished_bytes(std::string_view text);

/// text with U+FFFD in place of every byte that is not part of a character. Where they went, in bytes of the result, is
/// appended to *positions unless that is null.
std::string with_replacements(std::string_view text, std::vector<size_t>* positions = nullptr);

/// text with every space replaced by kSpaceMark, appended to out.
void append_marked(std::string_view text, std::string& out);

/// text with every kSpaceMark replaced by a space.
std::string unmark(std::string_view text);

}  // namespace tessera

#pragma once
// The alphabet in which byte-level BPE vocabularies write bytes: one letter of U+0021..U+0143 per byte, so that no
// token text holds spaces or control characters. Printable Latin-1 bytes stand for themselves, the other 68 follow from
// U+0100 on in byte order (GPT-2's encoder, described at github.com/openai/gpt-2, encoder.py: bytes_to_unicode).

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

/// The letter of each byte, in UTF-8 (one or two bytes).
const std::array<std::string, 256>& byte_letters();

/// The byte that the letter at the start of text stands for, and in *n_bytes how long that letter is; nothing if text
/// does not start with such a letter.
std::optional<char> byte_of_letter(std::string_view text, size_t* n_bytes);

}  // namespace tessera

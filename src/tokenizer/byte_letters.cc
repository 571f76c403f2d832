#include "tokenizer/byte_letters.h"

namespace tessera {
namespace {

constexpr uint32_t kLastLetter = 0x143;

struct Alphabet {
  std::array<std::string, 256> letters;
  std::array<int16_t, kLastLetter + 1> bytes{};  // by code point; -1 where no byte has that letter

  Alphabet() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const uint32_t letter = printable ? byte : next++;
      bytes[letter] = static_cast<int16_t>(byte);
      if (letter < 0x80) {
        letters[byte] = std::string(1, static_cast<char>(letter));
      } else {
        letters[byte] = {static_cast<char>(0xC0 | (letter >> 6)), static_cast<char>(0x80 | (letter & 0x3F))};
      }
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet;
  return kAlphabet;
}

}  // namespace

const std::array<std::string, 256>& byte_letters() {
  return alphabet().letters;
}

std::optional<char> byte_of_letter(std::string_view text, size_t* n_bytes) {
  if (text.empty()) {
    return std::nullopt;
  }
  const auto lead = static_cast<uint8_t>(text[0]);
  uint32_t letter = lead;
  *n_bytes = 1;
  if (lead >= 0x80) {
    if ((lead & 0xE0) != 0xC0 || text.size() < 2) {
      return std::nullopt;
    }
    letter = ((lead & 0x1FU) << 6) | (static_cast<uint8_t>(text[1]) & 0x3FU);
    *n_bytes = 2;
  }
  if (letter > kLastLetter || alphabet().bytes[letter] < 0) {
    return std::nullopt;
  }
  return static_cast<char>(alphabet().bytes[letter]);
}

}  // namespace tessera

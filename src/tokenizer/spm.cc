#include "tokenizer/spm.h"

#include <algorithm>
#include <fmt/format.h>

#include "tokenizer/utf8.h"

namespace tessera {

SpmEncoder::SpmEncoder(std::span<const std::string> tokens, std::span<const float> scores, const TextIndex& index,
                       std::optional<int32_t> unknown)
    : scores_(scores), index_(index), unknown_(unknown) {
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = index_.find(fmt::format("<0x{:02X}>", byte));
    if (byte_tokens_[byte] < 0) {
      byte_tokens_[byte] = index_.find(std::string(1, static_cast<char>(byte)));
    }
  }
  for (const std::string& token : tokens) {
    for (size_t at = token.find(kSpaceMark, 1); at != std::string::npos; at = token.find(kSpaceMark, at + 1)) {
      before_mark_[static_cast<uint8_t>(token[at - 1])] = true;
    }
  }
}

namespace {

// What the lead byte at i announces, as far as text goes. In text that is not UTF-8 that may cover what follows; a
// U+2581, which was a space, is not to be lost in it.
std::string_view character_at(std::string_view text, size_t i) {
  const size_t announced = utf8_announced_bytes(text[i]);
  const size_t mark = announced == 1 ? std::string_view::npos : text.substr(i, announced + 2).find(kSpaceMark, 1);
  return text.substr(i, std::min(announced, mark));
}

}  // namespace

void SpmEncoder::encode(std::string_view text, std::vector<int32_t>& ids) const {
  // No merge can cross a border in front of a U+2581 when no token holds what stands before it followed by one. Cutting
  // there changes nothing but the length of the runs: words instead of the whole text.
  std::vector<Symbol> symbols;
  size_t last_byte = 0;
  for (size_t i = 0; i < text.size();) {
    const std::string_view character = character_at(text, i);
    if (character == kSpaceMark && !symbols.empty() && !before_mark_[last_byte]) {
      encode_segment(text, symbols, ids);
    }
    symbols.push_back({index_.find(character), i, character.size()});
    last_byte = static_cast<uint8_t>(character.back());
    i += character.size();
  }
  encode_segment(text, symbols, ids);
}

// Merges symbols of text, appends their ids, and leaves symbols empty.
void SpmEncoder::encode_segment(std::string_view text, std::vector<Symbol>& symbols, std::vector<int32_t>& ids) const {
  merge_symbols<float>(symbols, [&](const Symbol& left, const Symbol& right) -> Merge<float> {
    const int32_t id = index_.find(text.substr(left.begin, left.size + right.size));
    return id < 0 ? Merge<float>{} : Merge<float>{-scores_[static_cast<size_t>(id)], id};
  });
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) {
      ids.push_back(symbol.id);
      continue;
    }
    for (const char byte : text.substr(symbol.begin, symbol.size)) {
      const int32_t token = byte_tokens_[static_cast<uint8_t>(byte)];
      if (token >= 0) {
        ids.push_back(token);
      } else if (unknown_) {
        ids.push_back(*unknown_);
      }
    }
  }
  symbols.clear();
}

std::vector<uint8_t> SpmEncoder::missing_bytes() const {
  return bytes_without_token(byte_tokens_);
}

}  // namespace tessera

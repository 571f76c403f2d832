#pragma once
// SentencePiece-style encoding: neighbours are merged whenever their text together is a token, best score first, down
// from single characters; what is no token is spelled in bytes. Immutable once built, safe for any thread.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/byte_tokens.h"
#include "tokenizer/merge.h"
#include "tokenizer/text_index.h"

namespace tessera {

class SpmEncoder {
 public:
  /// index: the texts that text may become, with ids into scores; both must outlive the encoder. scores: no NaN.
  SpmEncoder(std::span<const std::string> tokens, std::span<const float> scores, const TextIndex& index,
             std::optional<int32_t> unknown);

  /// Appends the ids of text, in which spaces are written U+2581 already. text may be any bytes; one that no token
  /// stands for becomes the unknown token, or is left out if there is none.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

  /// Bytes that no token stands for, ascending; none in a byte-complete vocabulary.
  [[nodiscard]] std::vector<uint8_t> missing_bytes() const;

 private:
  void encode_segment(std::string_view text, std::vector<Symbol>& symbols, std::vector<int32_t>& ids) const;

  std::span<const float> scores_;
  const TextIndex& index_;
  std::optional<int32_t> unknown_;
  ByteTokens byte_tokens_;               // or -1
  std::array<bool, 256> before_mark_{};  // last bytes of what some token holds in front of a U+2581
};

}  // namespace tessera

#pragma once
// Byte-pair encoding: the merges of a vocabulary, and words to ids by them. Immutable once built, safe for any thread.

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_tokens.h"
#include "tokenizer/merge.h"
#include "tokenizer/text_index.h"
#include "tokenizer/text_table.h"

namespace tessera {

struct BpeOptions {
  bool byte_letters = true;     // tokens are written in byte letters; else in UTF-8 with U+2581 for spaces
  bool ignore_merges = false;   // a word that is a token is taken whole
  bool whole_newlines = false;  // the same for words of nothing but "\n"
};

class BpeEncoder {
 public:
  /// merges: "left right", by rank. texts: of the tokens, by id. index: of those that text may become; parts and
  /// results of merges that are no such token are added to both, and index must outlive the encoder. warn: told once
  /// how many merges are not two texts with a space between. REQUIRES: texts has room for twice what merges take.
  BpeEncoder(std::span<const std::string> merges, TextTable& texts, TextIndex& index, const BpeOptions& options,
             const std::function<void(std::string_view)>& warn);

  /// Appends the ids of text, whose words end at ends (ascending, the last at text.size()). A byte that no token stands
  /// for is left out.
  void encode(std::string_view text, std::span<const size_t> ends, std::vector<int32_t>& ids) const;

  /// Bytes that no token stands for, ascending; none in a byte-complete vocabulary.
  [[nodiscard]] std::vector<uint8_t> missing_bytes() const;

 private:
  struct Rule {
    uint64_t pair = kNoPair;  // left id << 32 | right id
    uint32_t rank = 0;
    int32_t result = -1;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};

  void add_rules(std::span<const std::string> merges, TextTable& texts, TextIndex& index,
                 const std::function<void(std::string_view)>& warn);
  [[nodiscard]] size_t probe(uint64_t pair) const;
  [[nodiscard]] Merge<uint32_t> rule_for(const Symbol& left, const Symbol& right) const;
  void encode_word(std::string_view word, std::vector<Symbol>& symbols, std::string& letters,
                   std::vector<int32_t>& ids) const;
  [[nodiscard]] bool encode_whole(std::string_view word, std::string& letters, std::vector<int32_t>& ids) const;

  int32_t n_vocab_;
  const TextIndex& index_;
  BpeOptions options_;
  std::vector<Rule> rules_;                // open addressing, a power of two, at most half used
  std::array<int32_t, 256> byte_symbols_;  // what a word starts from, with byte letters
  ByteTokens byte_tokens_;                 // the token of a byte, or -1
};

}  // namespace tessera

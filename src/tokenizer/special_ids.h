#pragma once
// What the tokens of a vocabulary are for: types as the file states them, corrected by what is known of certain texts,
// and the ids of the tokens with a role. Files are unreliable here, so text decides where it is unmistakable.

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/text_index.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

/// Attributes of a token; more than one may hold (a user-defined token that turned out to be control).
enum TokenAttribute : uint8_t {
  kAttrUnknown = 1,
  kAttrNormal = 2,
  kAttrUserDefined = 4,
  kAttrControl = 8,
  kAttrUnused = 16,
  kAttrByte = 32,
  kAttrControlInFile = 64,  // the file says control, whatever text says: user text never becomes this token in a chat
};

struct SpecialIds {
  std::optional<int32_t> bos, eos, eot, eom, unk, sep, pad, mask;
  std::optional<int32_t> fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep;
  std::vector<int32_t> end_of_generation;  // ascending
  std::vector<uint8_t> attributes;         // [n_vocab] of TokenAttribute
};

/// texts: index of all texts of vocab.tokens. Roles that the file does not name are found by text; the "llama" model
/// has defaults for bos, eos and unk (1, 2, 0). An id out of range is warned about and counts as not named.
SpecialIds resolve_special_ids(const Vocab& vocab, const TextIndex& texts,
                               const std::function<void(std::string_view)>& warn);

}  // namespace tessera

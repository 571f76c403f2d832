#pragma once
// The DRY penalty ("don't repeat yourself", p-e-w 2024): a token that would lengthen a repetition of what came before
// is the less likely the longer that repetition already is. Sequence breakers end what counts as a repetition.

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "runtime/sampler_candidates.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

/// Token sequences that end a repetition, by their first token: what follows it, possibly nothing.
class DryBreakers {
 public:
  DryBreakers() = default;

  /// All ways in which tokens of the vocabulary can spell a breaker: tokens that contain it, and tokens that end with
  /// its beginning, followed by the tokens of the rest. Empty texts count for nothing; texts are cut after 40 bytes.
  /// Cost: one look at every token's text per breaker. Errors: kInvalidArgument for more than kMaxTexts.
  static Result<DryBreakers> create(const Tokenizer& tokenizer, std::span<const std::string> texts);

  /// Adds one sequence. REQUIRES: not empty.
  void add(std::span<const int32_t> sequence);

  /// How many tokens at the end of history lie behind the last breaker in it, the breaker's own tail not counted: the
  /// longest repetition that can matter. history.size() without a breaker.
  [[nodiscard]] size_t longest_repetition(std::span<const int32_t> history) const;

  /// Whether the token alone is a breaker.
  [[nodiscard]] bool is_breaker(int32_t token) const;

  static constexpr size_t kMaxTexts = 64;

 private:
  std::unordered_map<int32_t, std::vector<std::vector<int32_t>>> tails_by_head_;
};

struct DryPenalty {
  float multiplier = 0;
  float base = 1.75F;
  int32_t allowed_length = 2;
  int32_t last_n = 64;  // tokens of history to look at; negative: all

  [[nodiscard]] bool any() const { return multiplier != 0 && base >= 1 && last_n != 0; }

  /// Subtracts multiplier * base^(length - allowed_length) from every token that followed an earlier occurrence of the
  /// last `length` tokens, for its longest such length, if that is at least allowed_length. Breakers of one token are
  /// spared. Never drops a candidate.
  /// Linear in the tokens looked at. scratch is for reuse.
  void apply(Candidates& candidates, std::span<const int32_t> history, const DryBreakers& breakers,
             std::vector<int32_t>& scratch) const;
};

}  // namespace tessera

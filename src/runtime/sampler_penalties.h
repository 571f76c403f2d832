#pragma once
// Logit bias, and what makes tokens less likely that were there before: the repetition, frequency and presence
// penalties. DRY has its own header.

#include <map>
#include <span>
#include <vector>

#include "runtime/sampler_candidates.h"
#include "runtime/sampler_options.h"

namespace tessera {

/// Logit biases summed by token, ids ascending.
class LogitBiases {
 public:
  explicit LogitBiases(std::span<const LogitBias> biases);
  /// Adds each bias to its token's logit.
  void apply(Candidates& candidates) const;

 private:
  std::vector<int32_t> ids_;
  std::vector<float> biases_;
};

/// How often each token stands among the last n of a history that grows. Cost of a token: logarithmic.
class TokenWindow {
 public:
  /// The last n of history as it grows; negative: all of it.
  explicit TokenWindow(int64_t n) : n_(n) {}

  /// Takes in the last token of history. REQUIRES: called for every token, right after it was appended.
  void advance(std::span<const int32_t> history);

  [[nodiscard]] const std::map<int32_t, int32_t>& counts() const { return counts_; }

 private:
  int64_t n_;
  std::map<int32_t, int32_t> counts_;  // by token, ascending: how often
};

/// For every token in the window: a positive logit is divided by `repeat`, another one multiplied with it; then
/// count * frequency + presence is subtracted. Never drops a candidate.
struct RepetitionPenalties {
  float repeat = 1;
  float frequency = 0;
  float presence = 0;

  [[nodiscard]] bool any() const { return repeat != 1 || frequency != 0 || presence != 0; }
  void apply(Candidates& candidates, const TokenWindow& window) const;
};

}  // namespace tessera

#pragma once
// Adaptive-p: favours tokens whose probability is near an aim, which lies as far beyond the target as the mean of what
// was drawn, forgotten at a rate, is short of it (llama.cpp, pull request 17927). So the mean comes near the target, as
// far as there are tokens on both sides of it. It draws last, from what the other steps leave: some truncation before
// it, by min-p for one, keeps away the thousands of tokens near 0.

#include <cstddef>
#include <vector>

#include "runtime/sampler_candidates.h"

namespace tessera {

class AdaptiveP {
 public:
  /// target: 0 to 1. decay: 0 to kDecayMax, of what earlier tokens count for, token by token.
  AdaptiveP(double target, double decay);
  static constexpr double kDecayMax = 0.99;

  /// Replaces the candidates' weights. REQUIRES: they are weighed.
  void reweigh(Candidates& candidates);

  /// Learns that the candidate at this place of the list was drawn. REQUIRES: after reweigh(), place < its size.
  void learn(size_t place);

  /// What the next token's probability is to be near to.
  [[nodiscard]] double aim() const;

 private:
  double target_;
  double decay_;
  double sum_;                         // of the probabilities drawn, each decayed by its age
  double weight_;                      // of the same ones
  std::vector<double> probabilities_;  // before reweigh()
};

}  // namespace tessera

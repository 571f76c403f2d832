#pragma once
// Mirostat (Basu et al. 2021): instead of fixed limits, one that follows the surprise of the tokens drawn, so that it
// stays near tau bits. Version 1 estimates the distribution's Zipf exponent and keeps the k best; version 2 keeps what
// surprises less than mu.

#include "runtime/sampler_candidates.h"

namespace tessera {

class Mirostat {
 public:
  /// version: 1 or 2. tau: bits; eta: learning rate.
  Mirostat(int version, double tau, double eta);

  /// Keeps the candidates to draw from, at least one. n_vocab: as the model has, for version 1's estimate.
  void filter(Candidates& candidates, size_t n_vocab) const;

  /// Learns that a token of this probability among those kept was drawn. REQUIRES: 0 < probability <= 1.
  void learn(double probability);

  /// The present limit in bits; begins at 2 tau.
  [[nodiscard]] double mu() const { return mu_; }

 private:
  void keep_by_zipf(Candidates& candidates, size_t n_vocab) const;
  void keep_by_surprise(Candidates& candidates) const;

  int version_;
  double tau_;
  double eta_;
  double mu_;
};

}  // namespace tessera

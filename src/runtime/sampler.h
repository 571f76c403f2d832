#pragma once
// Chooses the next token from logits: the chain top-k, top-p, min-p, temperature, then one random draw.
//
// The chain's order and its defaults are the reference engine's (llama.cpp), so that settings people know mean the
// same. For one seed and equal logits the tokens are the same on every machine: the random numbers (SplitMix64; Steele,
// Lea, Flood 2014) and the exponential are computed here, without the C library, and ties go to the lowest id.
//
// Not thread-safe: one sampler per generation. It keeps its buffers from token to token.

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// This seed asks for a random one.
inline constexpr uint64_t kRandomSeed = 0xFFFFFFFF;

/// What a sampler returns when no logit is a number.
inline constexpr int32_t kNoToken = -1;

struct SamplerOptions {
  float temperature = 0.8F;  // 0 or less: always the largest logit, and the rest is ignored
  int32_t top_k = 40;        // keep the k largest; 0 or less: all
  float top_p = 0.95F;       // keep the fewest whose probabilities reach p, at least one; 1 or more: all
  float min_p = 0.05F;       // keep those at least p times as probable as the best; 0 or less: all
  uint64_t seed = kRandomSeed;
};

/// The largest logit's id, the lowest among equals; kNoToken when all are NaN or -inf.
[[nodiscard]] int32_t argmax(std::span<const float> logits);

struct TokenProbability {
  int32_t id = 0;
  float logit = 0;
  double probability = 0;
};

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);

  /// Draws a token. logits: [n_vocab] f32. NaN and -inf are never chosen; +inf counts as the largest float.
  /// Result: an id, or kNoToken when nothing can be chosen (a damaged model: end the generation with an error).
  /// Cost: one pass over the logits while top_k is small.
  int32_t sample(std::span<const float> logits);

  /// What sample() would draw from: probabilities sum to 1; best first, if top_k or top_p limit them, else by id.
  /// Draws nothing. Valid until the next call.
  std::span<const TokenProbability> distribution(std::span<const float> logits);

  /// The seed in use; never kRandomSeed.
  [[nodiscard]] uint64_t seed() const { return seed_; }

 private:
  void keep_numbers(std::span<const float> logits);
  void keep_top_k(std::span<const float> logits);
  void set_weights(double temperature);
  void keep_top_p();
  void keep_min_p();
  double draw();

  SamplerOptions options_;
  uint64_t seed_ = 0;
  uint64_t state_ = 0;
  std::vector<TokenProbability> candidates_;
  bool sorted_ = false;  // candidates_ are best first
};

}  // namespace tessera

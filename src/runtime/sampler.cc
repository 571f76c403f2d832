#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool better(const TokenProbability& a, const TokenProbability& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

TokenProbability candidate(size_t id, float logit) {
  return {static_cast<int32_t>(id), std::min(logit, std::numeric_limits<float>::max()), 0};
}

// e^x for x <= 0 from exactly rounded operations alone: libraries differ in the last bit, and so would the tokens.
// x = k ln 2 + r with |r| <= 0.35; the Taylor polynomial's error is below 1e-17 there.
double exp_of_negative(double x) {
  if (!(x > -745)) {  // the result is below the smallest double
    return 0;
  }
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2High = 6.93147180369123816490e-01;  // 21 low bits are 0: k * kLn2High is exact
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  constexpr double kEven[] = {1.0, 1.0 / 2, 1.0 / 24, 1.0 / 720, 1.0 / 40320, 1.0 / 3628800, 1.0 / 479001600};
  constexpr double kOdd[] = {1.0, 1.0 / 6, 1.0 / 120, 1.0 / 5040, 1.0 / 362880, 1.0 / 39916800, 1.0 / 6227020800};
  const double k = std::floor(x * kLog2E + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  const double r2 = r * r;
  double even = 0;  // two chains: half the latency of one
  double odd = 0;
  for (int n = 6; n >= 0; --n) {
    even = even * r2 + kEven[n];
    odd = odd * r2 + kOdd[n];
  }
  return std::ldexp(even + r * odd, static_cast<int>(k));
}

uint64_t random_seed() {
  std::random_device device;
  const uint64_t seed = (static_cast<uint64_t>(device()) << 32) | device();
  return seed == kRandomSeed ? 0 : seed;
}

}  // namespace

int32_t argmax(std::span<const float> logits) {
  int32_t best = kNoToken;
  float largest = -kInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > largest) {
      largest = logits[i];
      best = static_cast<int32_t>(i);
    }
  }
  return best;
}

Sampler::Sampler(const SamplerOptions& options)
    : options_(options), seed_(options.seed == kRandomSeed ? random_seed() : options.seed), state_(seed_) {}

int32_t Sampler::sample(std::span<const float> logits) {
  if (!(options_.temperature > 0)) {
    return argmax(logits);
  }
  distribution(logits);
  const double target = draw();
  double sum = 0;
  int32_t chosen = kNoToken;
  for (const TokenProbability& c : candidates_) {
    if (c.probability > 0) {
      chosen = c.id;  // also when rounding leaves the whole sum below the target
    }
    sum += c.probability;
    if (sum > target) {
      break;
    }
  }
  return chosen;
}

std::span<const TokenProbability> Sampler::distribution(std::span<const float> logits) {
  candidates_.clear();
  if (!(options_.temperature > 0)) {
    const int32_t best = argmax(logits);
    if (best != kNoToken) {
      candidates_.push_back(candidate(static_cast<size_t>(best), logits[static_cast<size_t>(best)]));
      candidates_.back().probability = 1;
    }
    return candidates_;
  }
  const bool has_top_k = options_.top_k > 0 && static_cast<size_t>(options_.top_k) < logits.size();
  has_top_k ? keep_top_k(logits) : keep_numbers(logits);
  if (options_.top_p < 1 || options_.min_p > 0) {
    set_weights(1);
    if (options_.top_p < 1) {
      keep_top_p();
    }
    if (options_.min_p > 0) {
      keep_min_p();
    }
  }
  set_weights(static_cast<double>(options_.temperature));
  double total = 0;
  for (const TokenProbability& c : candidates_) {
    total += c.probability;
  }
  for (TokenProbability& c : candidates_) {
    c.probability /= total;
  }
  return candidates_;
}

void Sampler::keep_numbers(std::span<const float> logits) {
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -kInfinity) {  // false for NaN, too
      candidates_.push_back(candidate(i, logits[i]));
    }
  }
  sorted_ = false;
}

// A heap with the worst of the best k on top: nearly every logit costs one comparison with it.
void Sampler::keep_top_k(std::span<const float> logits) {
  const auto k = static_cast<size_t>(options_.top_k);
  float worst = -kInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > worst)) {  // NaN, -inf, or an equal with a higher id
      continue;
    }
    const TokenProbability c = candidate(i, logits[i]);
    if (candidates_.size() == k) {
      if (c.logit == worst) {  // was +inf
        continue;
      }
      std::pop_heap(candidates_.begin(), candidates_.end(), better);
      candidates_.pop_back();
    }
    candidates_.push_back(c);
    std::push_heap(candidates_.begin(), candidates_.end(), better);
    if (candidates_.size() == k) {
      worst = candidates_.front().logit;
    }
  }
  std::sort_heap(candidates_.begin(), candidates_.end(), better);
  sorted_ = true;
}

// Probabilities up to a common factor: 1 for the best.
void Sampler::set_weights(double temperature) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const TokenProbability& c : candidates_) {
    largest = std::max(largest, static_cast<double>(c.logit));
  }
  for (TokenProbability& c : candidates_) {
    c.probability = exp_of_negative((static_cast<double>(c.logit) - largest) / temperature);
  }
}

// Sorts no further than it must: the best 64, then four times as many, and so on.
void Sampler::keep_top_p() {
  double total = 0;
  for (const TokenProbability& c : candidates_) {
    total += c.probability;
  }
  const double wanted = static_cast<double>(options_.top_p) * total;
  double sum = 0;
  size_t n_sorted = sorted_ ? candidates_.size() : 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (i == n_sorted) {
      n_sorted = std::min(candidates_.size(), std::max<size_t>(64, n_sorted * 4));
      const auto begin = candidates_.begin() + static_cast<std::ptrdiff_t>(i);
      const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(n_sorted);
      std::nth_element(begin, std::prev(end), candidates_.end(), better);
      std::sort(begin, end, better);
    }
    sum += candidates_[i].probability;
    if (sum >= wanted) {
      candidates_.resize(i + 1);
    }
  }
  sorted_ = true;
}

void Sampler::keep_min_p() {
  const auto least = static_cast<double>(std::min(options_.min_p, 1.0F));
  std::erase_if(candidates_, [least](const TokenProbability& c) { return c.probability < least; });
}

// Uniform in [0, 1), from the upper 53 bits.
double Sampler::draw() {
  state_ += 0x9E3779B97F4A7C15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

}  // namespace tessera

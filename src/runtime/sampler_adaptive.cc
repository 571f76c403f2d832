#include "runtime/sampler_adaptive.h"

#include <algorithm>
#include <cmath>

#include "runtime/sampler_math.h"

namespace tessera {
namespace {

// The reference's curve: a logit of kPeak at the target, which falls with the square of the distance while that is
// below kWidth and linearly far beyond.
constexpr double kWidth = 0.3;
constexpr double kPeak = 5;
constexpr double kSharpness = 10;

}  // namespace

// As if such tokens had been drawn for ever: the first ones do not swing it.
AdaptiveP::AdaptiveP(double target, double decay)
    : target_(std::clamp(target, 0.0, 1.0)),
      decay_(std::clamp(decay, 0.0, kDecayMax)),
      sum_(target_ / (1 - decay_)),
      weight_(1 / (1 - decay_)) {}

double AdaptiveP::aim() const {
  return std::clamp(2 * target_ - sum_ / weight_, 0.0, 1.0);
}

void AdaptiveP::reweigh(Candidates& candidates) {
  auto& list = candidates.list();
  const double total = total_weight(list);
  probabilities_.clear();
  for (TokenProbability& c : list) {
    const double probability = c.probability / total;
    const double distance = std::fabs(probability - aim()) / kWidth;
    probabilities_.push_back(probability);
    c.probability = exact_exp(kPeak - kSharpness * distance * distance / (1 + distance));
  }
}

void AdaptiveP::learn(size_t place) {
  sum_ = probabilities_[place] + decay_ * sum_;
  weight_ = 1 + decay_ * weight_;
}

}  // namespace tessera

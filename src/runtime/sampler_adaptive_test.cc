// By hand; against the reference engine in sampler_golden_test.cc.

#include "runtime/sampler_adaptive.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <span>

#include "runtime/sampler.h"

namespace tessera {
namespace {

// Probabilities 0.6, 0.3, 0.1.
const std::vector<float> kThree = {std::log(0.6F), std::log(0.3F), std::log(0.1F)};

SamplerOptions aiming_at(float target, float decay = 0.9F) {
  SamplerOptions o;
  o.samplers = {SamplerStep::kAdaptiveP};
  o.adaptive_target = target;
  o.adaptive_decay = decay;
  o.seed = 7;
  return o;
}

TEST(AdaptiveP, ReweighsByTheDistanceFromItsAim) {
  Candidates candidates;
  candidates.reset(kThree);
  candidates.weigh();
  AdaptiveP adaptive(0.3, 0.9);
  EXPECT_DOUBLE_EQ(adaptive.aim(), 0.3);
  adaptive.reweigh(candidates);
  // Distances of 1, 0 and 2/3 widths: logits of 5 - 10 / 2, 5 and 5 - 10 * 4/9 / (5/3).
  EXPECT_NEAR(candidates.list()[0].probability, std::exp(0.0), 1e-5);
  EXPECT_NEAR(candidates.list()[1].probability, std::exp(5.0), 1e-3);
  EXPECT_NEAR(candidates.list()[2].probability, std::exp(5 - 10 * 4 / 9.0 / (5 / 3.0)), 1e-3);
}

TEST(AdaptiveP, AimsAwayFromWhatWasDrawn) {
  Candidates candidates;
  candidates.reset(kThree);
  candidates.weigh();
  AdaptiveP forgetful(0.3, 0);
  forgetful.reweigh(candidates);
  forgetful.learn(0);  // 0.6, and nothing else is remembered
  EXPECT_NEAR(forgetful.aim(), 2 * 0.3 - 0.6, 1e-6);
  candidates.weigh();
  forgetful.learn(2);
  EXPECT_NEAR(forgetful.aim(), 2 * 0.3 - 0.1, 1e-6);
  AdaptiveP steady(0.3, 0.99);
  candidates.reset(kThree);
  candidates.weigh();
  steady.reweigh(candidates);
  steady.learn(0);
  EXPECT_NEAR(steady.aim(), 0.3 - 0.003, 1e-6);
}

// What is drawn in the mean, of probabilities as they were, while the aim stays.
double mean_drawn_at(double aim, std::span<const float> logits) {
  Candidates candidates;
  candidates.reset(logits);
  candidates.weigh();
  std::vector<double> before;
  for (const TokenProbability& c : candidates.list()) {
    before.push_back(c.probability);
  }
  AdaptiveP(aim, 0).reweigh(candidates);
  double before_total = 0;
  double total = 0;
  double sum = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    before_total += before[i];
    total += candidates.list()[i].probability;
    sum += candidates.list()[i].probability * before[i];
  }
  return sum / total / before_total;
}

// The aim is as far beyond the target as the mean is short of it, so the mean settles where it is what such an aim
// draws: nearer to the target than without learning, but not on it unless the tokens lie evenly around it.
double settled_mean(double target, std::span<const float> logits) {
  double low = 0;
  double high = 1;
  for (int i = 0; i < 50; ++i) {
    const double mean = (low + high) / 2;
    const double aim = std::clamp(2 * target - mean, 0.0, 1.0);
    (mean < mean_drawn_at(aim, logits) ? low : high) = mean;
  }
  return low;
}

TEST(AdaptiveP, TheMeanOfWhatIsDrawnComesNearTheTarget) {
  std::vector<float> logits;
  for (int i = 0; i < 12; ++i) {
    logits.push_back(static_cast<float>(-i) / 3);
  }
  double total = 0;
  for (const float x : logits) {
    total += std::exp(static_cast<double>(x));
  }
  for (const float wanted : {0.03F, 0.12F, 0.2F, 0.27F}) {
    SCOPED_TRACE(wanted);
    const auto target = static_cast<double>(wanted);
    const double expected = settled_mean(target, logits);
    EXPECT_LT(std::fabs(expected - target), std::fabs(mean_drawn_at(target, logits) - target));
    Sampler sampler(aiming_at(wanted, 0.99F));
    double sum = 0;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      sum += std::exp(static_cast<double>(logits[static_cast<size_t>(sampler.sample(logits))])) / total;
    }
    // Single draws are off by up to 0.1, their mean by a 140th of it. Without learning it would be off by 0.002 for the
    // first target, where the aim can go no lower than 0, and by 0.016 to 0.026 for the others.
    EXPECT_NEAR(sum / kDraws, expected, 0.002);
  }
}

TEST(AdaptiveP, IsOffBelowZeroAndAtTemperatureZero) {
  SamplerOptions off = aiming_at(-1);
  EXPECT_NEAR(Sampler(off).distribution(kThree)[0].probability, 0.6, 1e-6);
  SamplerOptions greedy = aiming_at(0.1F);
  greedy.samplers = {SamplerStep::kAdaptiveP, SamplerStep::kTemperature};
  greedy.temperature = 0;
  Sampler sampler(greedy);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(sampler.sample(kThree), 0);
  }
}

TEST(AdaptiveP, DrawsLastWhereverItStands) {
  SamplerOptions early = aiming_at(0.1F);
  early.samplers = {SamplerStep::kAdaptiveP, SamplerStep::kTopK};
  early.top_k = 2;
  SamplerOptions late = early;
  late.samplers = {SamplerStep::kTopK, SamplerStep::kAdaptiveP};
  Sampler a(early);
  Sampler b(late);
  for (int i = 0; i < 50; ++i) {
    const int32_t id = a.sample(kThree);
    EXPECT_EQ(id, b.sample(kThree));
    EXPECT_LT(id, 2);
  }
}

TEST(AdaptiveP, ThereMayBeNothingToDraw) {
  Sampler sampler(aiming_at(0.5F));
  EXPECT_EQ(sampler.sample(std::vector<float>(3, -INFINITY)), kNoToken);
  EXPECT_EQ(sampler.sample({}), kNoToken);
  EXPECT_NE(sampler.sample(kThree), kNoToken);
}

}  // namespace
}  // namespace tessera

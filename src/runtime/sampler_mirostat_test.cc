// By hand; against the reference engine in sampler_golden_test.cc.

#include "runtime/sampler_mirostat.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> kept(const Mirostat& mirostat, const std::vector<float>& logits) {
  Candidates candidates;
  candidates.reset(logits);
  mirostat.filter(candidates, logits.size());
  std::vector<int32_t> ids;
  for (const TokenProbability& t : candidates.list()) {
    ids.push_back(t.id);
  }
  return ids;
}

// Probabilities 1/2, 1/4, 1/8, 1/8: 1, 2, 3 and 3 bits.
const std::vector<float> kBits = {0, std::log(0.5F), std::log(0.25F), std::log(0.2499F)};

TEST(Mirostat, SecondVersionKeepsWhatSurprisesLessThanMu) {
  EXPECT_EQ(kept(Mirostat(2, 2, 0.1), kBits).size(), 4U);  // mu is 4
  EXPECT_THAT(kept(Mirostat(2, 1.25, 0.1), kBits), ElementsAre(0, 1));
  EXPECT_THAT(kept(Mirostat(2, 0.75, 0.1), kBits), ElementsAre(0));
  EXPECT_THAT(kept(Mirostat(2, 0, 0.1), kBits), ElementsAre(0));  // nothing is below 0 bits; the best stays
}

TEST(Mirostat, LearnsFromTheSurpriseDrawn) {
  Mirostat mirostat(2, 3, 0.5);
  EXPECT_DOUBLE_EQ(mirostat.mu(), 6);
  mirostat.learn(0.5);  // 1 bit, two below the aim: the limit rises
  EXPECT_DOUBLE_EQ(mirostat.mu(), 7);
  mirostat.learn(0.03125);  // 5 bits
  EXPECT_DOUBLE_EQ(mirostat.mu(), 6);
}

TEST(Mirostat, FirstVersionEstimatesHowManyToKeep) {
  // p(i) ~ 1/i^2 exactly: s is 2, epsilon 1, and k = (2^mu / (1 - 1/n))^(1/2).
  std::vector<float> zipf;
  for (int i = 1; i <= 90; ++i) {
    zipf.push_back(-2 * std::log(static_cast<float>(i)));
  }
  for (const double tau : {1.0, 2.0, 3.0}) {
    const double k = std::sqrt(std::pow(2, 2 * tau) / (1 - 1 / 90.0));
    EXPECT_EQ(kept(Mirostat(1, tau, 0.1), zipf).size(), static_cast<size_t>(k)) << tau;
  }
  // Where the estimate has no answer: equal logits, a single one, p ~ 1/i.
  EXPECT_EQ(kept(Mirostat(1, 5, 0.1), {1, 1, 1}).size(), 3U);
  EXPECT_EQ(kept(Mirostat(1, 5, 0.1), {1}).size(), 1U);
  EXPECT_EQ(kept(Mirostat(1, 0, 0.1), {0, -5000}).size(), 1U);
  for (float& x : zipf) {
    x /= 2;
  }
  EXPECT_EQ(kept(Mirostat(1, 3, 0.1), zipf).size(), static_cast<size_t>(std::pow(2, 6) / std::log(90.0)));
}

TEST(Mirostat, StaysFiniteWhateverItLearns) {
  Mirostat mirostat(2, 3e38, 3e38);
  for (int i = 0; i < 10; ++i) {
    mirostat.learn(i % 2 == 0 ? 1 : 5e-324);
    EXPECT_TRUE(std::isfinite(mirostat.mu()));
    EXPECT_FALSE(kept(mirostat, kBits).empty());
  }
}

}  // namespace
}  // namespace tessera

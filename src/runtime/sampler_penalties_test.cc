#include "runtime/sampler_penalties.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kHuge = std::numeric_limits<float>::max();

std::vector<float> logits_after(const RepetitionPenalties& penalties, const std::vector<float>& logits,
                                const std::vector<int32_t>& history, int64_t last_n = 64) {
  TokenWindow window(last_n);
  for (size_t n = 1; n <= history.size(); ++n) {
    window.advance(std::span(history).first(n));
  }
  Candidates candidates;
  candidates.reset(logits);
  penalties.apply(candidates, window);
  std::vector<float> result(logits.size(), -kInf);
  for (const TokenProbability& t : candidates.list()) {
    result[static_cast<size_t>(t.id)] = t.logit;
  }
  return result;
}

TEST(SamplerPenalties, ByHand) {
  // Token 0 twice, token 1 once, token 2 never.
  const std::vector<int32_t> history = {0, 1, 0};
  EXPECT_THAT(logits_after({.repeat = 2}, {4, -3, 5}, history), ElementsAre(2, -6, 5));
  EXPECT_THAT(logits_after({.frequency = 0.5F}, {4, -3, 5}, history), ElementsAre(3, -3.5F, 5));
  EXPECT_THAT(logits_after({.presence = 0.5F}, {4, -3, 5}, history), ElementsAre(3.5F, -3.5F, 5));
  EXPECT_THAT(logits_after({.repeat = 2, .frequency = 1, .presence = 0.5F}, {4, -3, 0}, history),
              ElementsAre(-0.5F, -7.5F, 0));
  EXPECT_THAT(logits_after({.repeat = 0.5F, .presence = -1}, {4, 0, 5}, history), ElementsAre(9, 1, 5));
}

TEST(SamplerPenalties, WindowCountsTheLastTokens) {
  const std::vector<int32_t> history = {5, 5, 7, 5, 9};
  const auto counts = [&](int64_t n) {
    TokenWindow window(n);
    for (size_t i = 1; i <= history.size(); ++i) {
      window.advance(std::span(history).first(i));
    }
    return window.counts();
  };
  EXPECT_THAT(counts(2), ElementsAre(Pair(5, 1), Pair(9, 1)));
  EXPECT_THAT(counts(3), ElementsAre(Pair(5, 1), Pair(7, 1), Pair(9, 1)));
  EXPECT_THAT(counts(5), ElementsAre(Pair(5, 3), Pair(7, 1), Pair(9, 1)));
  EXPECT_EQ(counts(6), counts(5));
  EXPECT_EQ(counts(1000), counts(5));
  EXPECT_EQ(counts(-1), counts(5));
  EXPECT_THAT(counts(0), IsEmpty());
  EXPECT_THAT(TokenWindow(64).counts(), IsEmpty());
}

TEST(SamplerPenalties, WindowAgreesWithCountingAnew) {
  std::mt19937 random(2);
  for (const int64_t n : {1, 7, 64, 500, -1}) {
    TokenWindow window(n);
    std::vector<int32_t> history;
    for (int i = 0; i < 300; ++i) {
      history.push_back(static_cast<int32_t>(random() % 20));
      window.advance(history);
      std::map<int32_t, int32_t> expected;
      const size_t first = n < 0 ? 0 : history.size() - std::min(history.size(), static_cast<size_t>(n));
      for (size_t k = first; k < history.size(); ++k) {
        ++expected[history[k]];
      }
      ASSERT_EQ(window.counts(), expected) << n << " " << i;
    }
  }
}

TEST(SamplerPenalties, HugeOnesDropNoCandidate) {
  EXPECT_THAT(logits_after({.repeat = kHuge}, {-kHuge, kHuge, 1}, {0, 1, 2}), ElementsAre(-kHuge, 1, 1 / kHuge));
  EXPECT_THAT(logits_after({.frequency = kHuge, .presence = kHuge}, {-kHuge, 1, 2}, {0, 1, 1}),
              ElementsAre(-kHuge, -kHuge, 2));
  EXPECT_THAT(logits_after({.repeat = 0}, {3, -3, 0}, {0, 1, 2}), ElementsAre(kHuge, 0, 0));
  EXPECT_THAT(logits_after({.presence = -kHuge}, {kHuge, 1, 2}, {0}), ElementsAre(kHuge, 1, 2));
}

TEST(SamplerPenalties, OnlyCandidatesArePenalised) {
  EXPECT_THAT(logits_after({.repeat = 2, .presence = -9}, {-kInf, 4, 5}, {0, 1, 77, -1}), ElementsAre(-kInf, 11, 5));
  EXPECT_THAT(logits_after({.repeat = 2}, {1, 2}, {}), ElementsAre(1, 2));
  EXPECT_FALSE(RepetitionPenalties().any());
}

TEST(LogitBiases, AddUpAndBan) {
  const std::vector<LogitBias> list = {{2, 1}, {0, -kInf}, {2, 0.5F}, {0, kInf}, {3, kInf}, {9, 4}};
  Candidates candidates;
  const std::vector<float> logits = {9, 1, 2, 3};
  candidates.reset(logits);
  LogitBiases(list).apply(candidates);
  std::vector<std::pair<int32_t, float>> found;
  for (const TokenProbability& t : candidates.list()) {
    found.emplace_back(t.id, t.logit);
  }
  EXPECT_THAT(found, ElementsAre(Pair(1, 1), Pair(2, 3.5F), Pair(3, kHuge)));
  EXPECT_THAT(logits, ElementsAre(9, 1, 2, 3));  // the model's own stay as they are
}

}  // namespace
}  // namespace tessera

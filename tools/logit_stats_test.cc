#include "logit_stats.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <string_view>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(LogitStats, OfFourLogits) {
  const float row[] = {1, -2, 3, 0};
  const LogitStats stats = logit_stats(row);
  EXPECT_EQ(stats.min, -2);
  EXPECT_EQ(stats.max, 3);
  EXPECT_DOUBLE_EQ(stats.mean, 0.5);
  EXPECT_DOUBLE_EQ(stats.rms, std::sqrt(14.0 / 4));
  EXPECT_NEAR(stats.lse, std::log(std::exp(1) + std::exp(-2) + std::exp(3) + 1), 1e-12);
}

TEST(LogitStats, LargeLogitsDoNotOverflow) {
  const float row[] = {10000, 10000};
  EXPECT_NEAR(logit_stats(row).lse, 10000 + std::log(2), 1e-9);
}

TEST(TopLogits, LargestFirstThenSmallestId) {
  const float row[] = {1, 5, 5, -1, 7};
  EXPECT_THAT(top_logits(row, 4), ElementsAre(Pair(4, 7.0F), Pair(1, 5.0F), Pair(2, 5.0F), Pair(0, 1.0F)));
  EXPECT_EQ(top_logits(row, 100).size(), 5U);
  EXPECT_TRUE(top_logits(row, 0).empty());
}

TEST(TopLogits, NotANumberComesLast) {
  const float row[] = {std::numeric_limits<float>::quiet_NaN(), -1e30F, 2};
  const auto top = top_logits(row, 3);
  EXPECT_EQ(top[0].first, 2);
  EXPECT_EQ(top[1].first, 1);
  EXPECT_EQ(top[2].first, 0);
}

TEST(NineDigits, RoundsDecimally) {
  EXPECT_EQ(nine_digits(static_cast<double>(27.2109890F)), 27.210989);
  EXPECT_EQ(nine_digits(-1.0), -1.0);
}

}  // namespace
}  // namespace tessera

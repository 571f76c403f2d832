#include "bench_lists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(BenchLists, NumbersAndRanges) {
  const auto numbers = [](std::string_view text) { return parse_numbers("-p", text, 0).value(); };
  EXPECT_THAT(numbers("512"), ElementsAre(512));
  EXPECT_THAT(numbers("1,0,7"), ElementsAre(1, 0, 7));
  EXPECT_THAT(numbers("2-5"), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(numbers("512-2048+512"), ElementsAre(512, 1024, 1536, 2048));
  EXPECT_THAT(numbers("1-70*4,9"), ElementsAre(1, 4, 16, 64, 9));
  EXPECT_THAT(numbers("3-3"), ElementsAre(3));
}

TEST(BenchLists, WhatIsNoListIsRefused) {
  for (const char* text :
       {"", ",", "1,", "a", "1-", "5-1", "1-9*1", "0-8*2", "1-9+0", "1-9+", "1.5", "99999999999999999999"}) {
    const auto found = parse_numbers("-p", text, 0);
    ASSERT_FALSE(found.ok()) << text;
    EXPECT_THAT(found.status().message(), HasSubstr("-p")) << text;
  }
  EXPECT_THAT(parse_numbers("-b", "0", 1).status().message(), HasSubstr("at least 1"));
  EXPECT_TRUE(parse_numbers("-t", "-1,7,8", -1, 8).ok());
  EXPECT_THAT(parse_numbers("-t", "7-9", -1, 8).status().message(), HasSubstr("-t is 9; it must be at most 8"));
  EXPECT_THAT(parse_numbers("-d", "0-1000000", 0).status().message(), HasSubstr("more than"));
}

TEST(BenchLists, Spread) {
  EXPECT_EQ(spread_of({}).mean, 0);
  EXPECT_EQ(spread_of({3}).deviation, 0);
  const Spread spread = spread_of({2, 4, 4, 4, 5, 5, 7, 9});
  EXPECT_DOUBLE_EQ(spread.mean, 5);
  EXPECT_NEAR(spread.deviation, 2.138, 1e-3);  // sqrt(32 / 7)
}

}  // namespace
}  // namespace tessera

#include "base/decimal.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace tessera {
namespace {

TEST(Decimal, IsWhatPeopleWrite) {
  EXPECT_EQ(as_written(0.8F), 0.8);
  EXPECT_EQ(as_written(0.95F), 0.95);
  EXPECT_EQ(as_written(-1.75F), -1.75);
  EXPECT_EQ(as_written(1e30F), 1e30);
  EXPECT_TRUE(std::signbit(as_written(-0.0F)));
  EXPECT_EQ(as_written(-std::numeric_limits<float>::infinity()), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(as_written(std::nanf(""))));
}

TEST(Decimal, ReadsBackAsTheSameFloat) {
  std::mt19937 random(1);
  for (int i = 0; i < 10000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(value)) {
      EXPECT_EQ(static_cast<float>(as_written(value)), value);
    }
  }
}

}  // namespace
}  // namespace tessera

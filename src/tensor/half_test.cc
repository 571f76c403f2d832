#include "tensor/half.h"

#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace tessera {
namespace {

// The value by its definition: sign × fraction × 2^exponent, in double arithmetic.
double f16_by_definition(uint16_t h) {
  const int exponent = h >> 10 & 31;
  const int fraction = h & 1023;
  const double sign = (h & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

TEST(Half, EveryF16IsDecodedByDefinitionAndComesBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const double wanted = f16_by_definition(h);
    const float found = f16_to_f32(h);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(found)) << i;
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(found)))) << i;
      continue;
    }
    ASSERT_EQ(static_cast<double>(found), wanted) << i;
    ASSERT_EQ(std::signbit(found), std::signbit(wanted)) << i;
    ASSERT_EQ(f32_to_f16(found), h) << i;
  }
}

// Between each two neighbours: below the middle goes down, above goes up, the middle to the even one.
TEST(Half, F16RoundsToNearestEven) {
  for (uint32_t i = 0; i < 0x7BFF; ++i) {
    const auto low = static_cast<uint16_t>(i);
    const auto high = static_cast<uint16_t>(i + 1);
    const float middle = (f16_to_f32(low) + f16_to_f32(high)) * 0.5F;  // exact: float32 has 13 more bits
    const auto even = static_cast<uint16_t>(i % 2 == 0 ? low : high);
    ASSERT_EQ(f32_to_f16(middle), even) << i;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0F)), low) << i;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 1e9F)), high) << i;
    ASSERT_EQ(f32_to_f16(-middle), even | 0x8000) << i;
  }
  EXPECT_EQ(f32_to_f16(65519.996F), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(f32_to_f16(3e38F), 0x7C00);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(f32_to_f16(1e-45F), 0);
  EXPECT_EQ(f32_to_f16(-1e-45F), 0x8000);
}

TEST(Half, Bf16IsTheUpperHalfRoundedToNearestEven) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const float value = bf16_to_f32(h);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(value)))) << i;
      continue;
    }
    ASSERT_EQ(f32_to_bf16(value), h) << i;
    const uint32_t below_middle = i << 16 | 0x7FFFU;
    const uint32_t middle = i << 16 | 0x8000U;
    if (std::isfinite(value)) {
      ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(below_middle)), h) << i;
      ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle)), h + (h & 1)) << i;
    }
  }
  // A NaN whose upper half alone would read as infinity.
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7F800001U)))));
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(std::bit_cast<float>(0x7F800001U)))));
}

}  // namespace
}  // namespace tessera

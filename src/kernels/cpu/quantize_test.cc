// Quantised activations: portable against the contract's formula, instruction sets against portable.

#include "kernels/ops/quantize.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>

#include "kernels/kernel_test_util.h"

namespace tessera {
namespace {

class QuantizeTest : public CpuTableTest {
 protected:
  void SetUp() override {
    if (is_scalar()) {
      GTEST_SKIP() << "products of the scalar set read float activations";
    }
  }
};

GuardedBytes quantize(KernelFn kernel, GuardedRows& x, int64_t n_rows, int n_threads) {
  GuardedBytes q8(n_rows * q8_row_bytes(x.width()));
  const QuantizeArgs args = {x.data(), x.stride(), x.width(), q8.data(), false};
  run_kernel(kernel, args, {static_cast<int32_t>(n_rows), 0, 0}, n_threads);
  EXPECT_TRUE(q8.guards_intact());
  return q8;
}

TEST_P(QuantizeTest, EqualBitsOverShapesAndTeams) {
  TestRandom random(1);
  for (const int64_t columns : {32, 64, 96, 576, 2048}) {
    for (const int64_t n_rows : {1, 2, 3, 17}) {
      GuardedRows x(random, n_rows, columns, columns + 7);
      const GuardedBytes expected = quantize(definition(Op::kQuantize), x, n_rows, 1);
      for (const int n_threads : {1, 2, 3, 7}) {
        EXPECT_TRUE(quantize(kernel(Op::kQuantize), x, n_rows, n_threads) == expected)
            << columns << " columns, " << n_rows << " rows, " << n_threads << " threads";
      }
    }
  }
}

/// Values on both sides of rounding ties, tiny ones, zeros of both signs.
TEST_P(QuantizeTest, FollowsTheFormula) {
  TestRandom random(2);
  for (int round = 0; round < 300; ++round) {
    GuardedRows x(1, 32, 32);
    const float size = std::ldexp(1.0F, static_cast<int>(random.below(240)) - 120);
    for (int64_t i = 0; i < 32; ++i) {
      x.at(0, i) = round % 3 == 0 ? size * (static_cast<float>(random.below(255)) - 127) / 2 : size * random.normal();
    }
    if (round == 0) {
      std::fill_n(x.data(), 32, -0.0F);
    }
    GuardedBytes q8 = quantize(kernel(Op::kQuantize), x, 1, 1);
    const auto* q = reinterpret_cast<const int8_t*>(q8.data());
    const Q8Scale& scale = *q8_scales(q8.data(), 32);
    float max = 0;
    for (int64_t i = 0; i < 32; ++i) {
      max = std::max(max, std::fabs(x.at(0, i)));
    }
    const float d = max / 127.0F;
    ASSERT_EQ(scale.d, d);
    int32_t sums[2] = {};
    for (int64_t i = 0; i < 32; ++i) {
      const float expected = d == 0 ? 0 : std::nearbyintf(x.at(0, i) * (1.0F / d));
      ASSERT_EQ(q[i], static_cast<int>(expected)) << "round " << round << " value " << x.at(0, i);
      sums[i / 16] += q[i];
    }
    EXPECT_EQ(scale.c, -128 * (sums[0] + sums[1]));
    EXPECT_EQ(scale.c_first, -128 * sums[0]);
    EXPECT_EQ(scale.m, d * static_cast<float>(sums[0] + sums[1]));
  }
}

TEST_P(QuantizeTest, TinyBlocksAreZero) {
  GuardedRows x(1, 32, 32);
  std::fill_n(x.data(), 32, 1e-40F);
  GuardedBytes q8 = quantize(kernel(Op::kQuantize), x, 1, 1);
  EXPECT_EQ(q8_scales(q8.data(), 32)->d, 0);
  EXPECT_TRUE(std::all_of(q8.data(), q8.data() + 32, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_P(QuantizeTest, ValuesThatAreNotFiniteStaySo) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const int64_t at : {0, 13, 31}) {
      TestRandom random(3);
      GuardedRows x(random, 1, 64, 64);
      x.at(0, at) = bad;
      GuardedBytes q8 = quantize(kernel(Op::kQuantize), x, 1, 1);
      const Q8Scale* scales = q8_scales(q8.data(), 64);
      EXPECT_FALSE(std::isfinite(scales[0].d));
      EXPECT_FALSE(std::isfinite(scales[0].m));
      EXPECT_TRUE(std::isfinite(scales[1].d));
    }
  }
}

TESSERA_FOR_CPU_TABLES(QuantizeTest);

}  // namespace
}  // namespace tessera

// Quantised activations: portable against the contract's formula, instruction sets against portable.

#include "kernels/ops/quantize.h"

#include <algorithm>
#include <cfloat>
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

void check_block(const float* x, const int8_t* q, const Q8Scale& scale) {
  float max = 0;
  for (int64_t i = 0; i < 32; ++i) {
    max = std::max(max, std::fabs(x[i]));
  }
  const float d = max / 127.0F < FLT_MIN ? 0 : max / 127.0F;
  EXPECT_EQ(scale.d, d);
  int32_t sums[2] = {};
  for (int64_t i = 0; i < 32; ++i) {
    const float expected = d == 0 ? 0 : std::nearbyintf(x[i] * (1.0F / d));
    EXPECT_EQ(q[i], static_cast<int>(expected)) << x[i] << " in a block of largest " << max;
    sums[i / 16] += q[i];
  }
  EXPECT_EQ(scale.c, kSumStart - 128 * (sums[0] + sums[1]));
  EXPECT_EQ(scale.c_first, kSumStart - 128 * sums[0]);
  EXPECT_EQ(scale.c_second, kSumStart - 128 * sums[1]);
  EXPECT_EQ(scale.m_first, d * static_cast<float>(sums[0]));
  EXPECT_EQ(scale.m, d * static_cast<float>(sums[0] + sums[1]));
}

/// Values on both sides of rounding ties, tiny ones, zeros of both signs.
TEST_P(QuantizeTest, FollowsTheFormula) {
  TestRandom random(2);
  for (int round = 0; round < 300; ++round) {
    GuardedRows x(1, 160, 160);
    for (int64_t b = 0; b < 5; ++b) {
      const float size = std::ldexp(1.0F, static_cast<int>(random.below(240)) - 120);
      for (int64_t i = 0; i < 32; ++i) {
        const bool ties = round % 3 == 0;
        x.at(0, b * 32 + i) = round == 0 ? -0.0F
                              : ties     ? size * (static_cast<float>(random.below(255)) - 127) / 2
                                         : size * random.normal();
      }
    }
    GuardedBytes q8 = quantize(kernel(Op::kQuantize), x, 1, 1);
    for (int64_t b = 0; b < 5; ++b) {
      check_block(x.row(0) + b * 32, reinterpret_cast<const int8_t*>(q8.data()) + b * 32, q8_scales(q8.data(), 160)[b]);
    }
  }
}

TEST_P(QuantizeTest, TinyBlocksAreZero) {
  GuardedRows x(1, 128, 128);
  std::fill_n(x.data(), 128, 1e-40F);
  GuardedBytes q8 = quantize(kernel(Op::kQuantize), x, 1, 1);
  EXPECT_EQ(q8_scales(q8.data(), 128)->d, 0);
  EXPECT_TRUE(std::all_of(q8.data(), q8.data() + 128, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_P(QuantizeTest, ValuesThatAreNotFiniteGiveNaN) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const int64_t at : {0, 13, 31}) {
      TestRandom random(3);
      GuardedRows x(random, 1, 256, 256);
      x.at(0, 96 + at) = bad;
      GuardedBytes q8 = quantize(kernel(Op::kQuantize), x, 1, 1);
      EXPECT_TRUE(q8 == quantize(definition(Op::kQuantize), x, 1, 1));
      const Q8Scale* scales = q8_scales(q8.data(), 256);
      for (int64_t b = 0; b < 8; ++b) {
        EXPECT_EQ(std::isnan(scales[b].d), b == 3);
        EXPECT_EQ(std::isnan(scales[b].m), b == 3);
      }
      EXPECT_TRUE(std::all_of(q8.data() + 96, q8.data() + 128, [](std::byte q) { return q == std::byte{0}; }));
    }
  }
}

TESSERA_FOR_CPU_TABLES(QuantizeTest);

}  // namespace
}  // namespace tessera

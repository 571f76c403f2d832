#include "kernels/ops/gated_norm.h"

#include <cmath>

#include "kernels/kernel_test_util.h"

namespace tessera {
namespace {

class GatedNormTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(GatedNormTest);

TEST_P(GatedNormTest, MatchesDoubleAndDefinition) {
  TestRandom random(1);
  constexpr float kEps = 1e-5F;
  for (const int64_t width : {1, 7, 16, 33, 128, 255}) {
    for (const int64_t n_groups : {1, 3}) {
      const int n_tokens = 4;
      const int64_t row = width * n_groups;
      SCOPED_TRACE(testing::Message() << n_groups << " x " << width);
      GuardedRows x(random, n_tokens, row, row + 2);
      GuardedRows z(random, n_tokens, row, row + 1);
      z.at(0, 0) = -100;
      z.at(1, 0) = 100;
      const std::vector<float> weight = random.normals(width);
      const auto args = [&](GuardedRows& in, GuardedRows& y) {
        return GatedNormArgs{in.data(), in.stride(), z.data(), z.stride(), weight.data(),
                             y.data(),  y.stride(),  n_groups, width,      kEps};
      };
      GuardedRows expected(n_tokens, row, row + 2);
      run_kernel(definition(Op::kGatedNorm), args(x, expected), {n_tokens, 0, 1});
      ASSERT_TRUE(expected.gaps_intact());
      for (int64_t t = 0; t < n_tokens; ++t) {
        for (int64_t i = 0; i < row; ++i) {
          double squares = 0;
          for (int64_t j = i / width * width; j < (i / width + 1) * width; ++j) {
            squares += static_cast<double>(x.at(t, j)) * x.at(t, j);
          }
          const double gate = z.at(t, i) / (1 + std::exp(-static_cast<double>(z.at(t, i))));
          const double want = x.at(t, i) / std::sqrt(squares / static_cast<double>(width) + kEps) *
                              weight[static_cast<size_t>(i % width)] * gate;
          // Half of the sum of squares' error, the root, five products; silu 8 half-ulps.
          const double bound = std::fabs(want) * kF32Epsilon * (static_cast<double>(width) / 16 + 24) + 1e-37;
          ASSERT_TRUE(within(expected.at(t, i), want, bound)) << t << " " << i;
        }
      }
      for (const int n_threads : {1, 2, 7}) {
        GuardedRows y(n_tokens, row, row + 2);
        run_kernel(kernel(Op::kGatedNorm), args(x, y), {n_tokens, 0, 1}, n_threads);
        ASSERT_EQ(y, expected) << n_threads << " threads";
      }
      GuardedRows in_place = x;
      run_kernel(kernel(Op::kGatedNorm), args(in_place, in_place), {n_tokens, 0, 1});
      ASSERT_EQ(in_place, expected);
    }
  }
}

}  // namespace
}  // namespace tessera

#include "kernels/ops/affine.h"

#include "kernels/kernel_test_util.h"

namespace tessera {
namespace {

class AffineTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(AffineTest);

TEST_P(AffineTest, RoundsEachStepAndSkipsAbsentParts) {
  TestRandom random(1);
  for (const int64_t width : test_widths()) {
    const int n_rows = static_cast<int>(width % 4);
    GuardedRows x(random, n_rows, width, width + 1);
    const std::vector<float> bias = random.normals(width);
    const float scale = 0.37F;
    for (const bool has_scale : {false, true}) {
      for (const bool has_bias : {false, true}) {
        GuardedRows expected(n_rows, width, width + 3);
        for (int64_t row = 0; row < n_rows; ++row) {
          for (int64_t i = 0; i < width; ++i) {
            const float scaled = has_scale ? x.at(row, i) * scale : x.at(row, i);
            expected.at(row, i) = has_bias ? scaled + bias[static_cast<size_t>(i)] : scaled;
          }
        }
        for (const int n_threads : {1, 2, 3, 7}) {
          GuardedRows y(n_rows, width, width + 3);
          const AffineArgs args{x.data(),
                                x.stride(),
                                y.data(),
                                y.stride(),
                                width,
                                has_scale ? &scale : nullptr,
                                has_bias ? bias.data() : nullptr,
                                width % 2 == 0};
          run_kernel(kernel(Op::kAffine), args, {args.per_output ? 9 : n_rows, args.per_output ? n_rows : 9, 1},
                     n_threads);
          ASSERT_EQ(y, expected) << width << " columns, " << n_threads << " threads";
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera

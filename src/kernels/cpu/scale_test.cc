#include "kernels/ops/scale.h"

#include "kernels/kernel_test_util.h"

namespace tessera {
namespace {

class ScaleTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(ScaleTest);

TEST_P(ScaleTest, ScalesAndCaps) {
  TestRandom random(1);
  for (const float cap : {0.0F, 30.0F, 0.5F}) {
    for (const int64_t width : test_widths()) {
      const int n_rows = static_cast<int>(width % 4);
      GuardedRows x(random, n_rows, width, width + 1);
      for (int64_t row = 0; row < n_rows; ++row) {
        x.at(row, width / 2) = random.uniform(-3e4F, 3e4F);
        x.at(row, 0) = 1e-30F;
      }
      GuardedRows expected(n_rows, width, width + 3);
      ScaleArgs args{x.data(), x.stride(), expected.data(), expected.stride(), width, 0.73F, cap, width % 2 == 0};
      const LaunchSizes sizes = {args.per_output ? 9 : n_rows, args.per_output ? n_rows : 9, 1};
      run_kernel(definition(Op::kScale), args, sizes);
      ASSERT_TRUE(expected.gaps_intact());
      for (int64_t row = 0; row < n_rows; ++row) {
        for (int64_t i = 0; i < width; ++i) {
          const double scaled = x.at(row, i) * 0.73F;
          const double exact = cap > 0 ? cap * std::tanh(scaled / cap) : scaled;
          ASSERT_TRUE(within(expected.at(row, i), exact, cap > 0 ? std::fabs(exact) * kF32Epsilon * 12 : 0));
        }
      }
      for (const int n_threads : {1, 2, 3, 7}) {
        GuardedRows y(n_rows, width, width + 3);
        args.y = y.data();
        run_kernel(kernel(Op::kScale), args, sizes, n_threads);
        ASSERT_EQ(y, expected) << width << " columns, cap " << cap << ", " << n_threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace tessera

#include "kernels/ops/gather_rows.h"

#include "kernels/kernel_test_util.h"

namespace tessera {
namespace {

class GatherRowsTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(GatherRowsTest);

TEST_P(GatherRowsTest, CopiesTheRowsAskedFor) {
  TestRandom random(1);
  const std::vector<int32_t> rows = {4, 0, 4, 2};
  for (const int64_t width : test_widths()) {
    GuardedRows x(random, 5, width, width + 1);
    for (const int n_outputs : {0, 1, 4}) {
      GuardedRows expected(n_outputs, width, width + 2);
      for (int64_t i = 0; i < n_outputs; ++i) {
        std::memcpy(expected.row(i), x.row(rows[static_cast<size_t>(i)]), static_cast<size_t>(width) * 4);
      }
      for (const int n_threads : {1, 2, 3, 7}) {
        GuardedRows y(n_outputs, width, width + 2);
        const GatherRowsArgs args{x.data(), x.stride(), rows.data(), y.data(), y.stride(), width};
        run_kernel(kernel(Op::kGatherRows), args, {5, n_outputs, 1}, n_threads);
        ASSERT_EQ(y, expected) << width << " columns, " << n_threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace tessera

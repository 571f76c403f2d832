#include "kernels/ops/add.h"

#include "kernels/kernel_test_util.h"

namespace tessera {
namespace {

class AddTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(AddTest);

TEST_P(AddTest, AddsEachElement) {
  TestRandom random(1);
  for (const int64_t width : test_widths()) {
    for (const int n_rows : {0, 1, 2, 7}) {
      GuardedRows a(random, n_rows, width, width + 1);
      GuardedRows b(random, n_rows, width, width + 2);
      GuardedRows expected(n_rows, width, width + 3);
      for (int64_t row = 0; row < n_rows; ++row) {
        for (int64_t i = 0; i < width; ++i) {
          expected.at(row, i) = a.at(row, i) + b.at(row, i);
        }
      }
      for (const int n_threads : {1, 2, 3, 7}) {
        GuardedRows y(n_rows, width, width + 3);
        const AddArgs args{a.data(), a.stride(), b.data(), b.stride(), y.data(), y.stride(), width, true};
        run_kernel(kernel(Op::kAdd), args, {9, n_rows, 1}, n_threads);
        ASSERT_EQ(y, expected) << width << " columns, " << n_threads << " threads";
      }
      GuardedRows in_place = a;
      const AddArgs args{a.data(), a.stride(), b.data(), b.stride(), in_place.data(), in_place.stride(), width, false};
      run_kernel(kernel(Op::kAdd), args, {n_rows, 0, 1});
      for (int64_t row = 0; row < n_rows; ++row) {
        ASSERT_EQ(0, std::memcmp(in_place.row(row), expected.row(row), static_cast<size_t>(width) * 4));
      }
      ASSERT_TRUE(in_place.gaps_intact());
    }
  }
}

}  // namespace
}  // namespace tessera

#include "kernels/ops/gate_rows.h"

#include "kernels/kernel_test_util.h"

namespace tessera {
namespace {

class GateRowsTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(GateRowsTest);

TEST_P(GateRowsTest, MultipliesRowsBySigmoid) {
  TestRandom random(1);
  for (const int64_t width : {1, 16, 255, 257, 600}) {
    const int n_tokens = 3;
    GuardedRows x(random, n_tokens, width, width);
    const std::vector<float> gate = {-90, 0.3F, 40};
    GuardedRows expected(n_tokens, width, width);
    GateRowsArgs args = {x.data(), gate.data(), expected.data(), width};
    run_kernel(definition(Op::kGateRows), args, {n_tokens, 0, 1});
    ASSERT_TRUE(expected.gaps_intact());
    for (int64_t t = 0; t < n_tokens; ++t) {
      for (int64_t i = 0; i < width; ++i) {
        const double exact = x.at(t, i) / (1 + std::exp(-static_cast<double>(gate[static_cast<size_t>(t)])));
        ASSERT_TRUE(within(expected.at(t, i), exact, std::fabs(exact) * 8 * kF32Epsilon + 1e-38));
      }
    }
    for (const int n_threads : {1, 2, 7}) {
      GuardedRows y = x;
      args.x = args.y = y.data();
      run_kernel(kernel(Op::kGateRows), args, {n_tokens, 0, 1}, n_threads);
      ASSERT_EQ(y, expected);
    }
  }
}

}  // namespace
}  // namespace tessera

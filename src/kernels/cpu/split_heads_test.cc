#include "kernels/ops/split_heads.h"

#include "kernels/kernel_test_util.h"

namespace tessera {
namespace {

class SplitHeadsTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(SplitHeadsTest);

TEST_P(SplitHeadsTest, PartsEachHead) {
  TestRandom random(1);
  for (const int64_t head_dim : {1, 24, 256}) {
    for (const int64_t n_heads : {1, 5}) {
      const int n_tokens = 3;
      const int64_t width = n_heads * head_dim;
      GuardedRows x(random, n_tokens, 2 * width, 2 * width);
      for (const int n_threads : {1, 2, 7}) {
        GuardedRows first(n_tokens, width, width);
        GuardedRows second(n_tokens, width, width);
        run_kernel(kernel(Op::kSplitHeads), SplitHeadsArgs{x.data(), first.data(), second.data(), n_heads, head_dim},
                   {n_tokens, 0, 1}, n_threads);
        ASSERT_TRUE(first.gaps_intact() && second.gaps_intact());
        for (int64_t t = 0; t < n_tokens; ++t) {
          for (int64_t i = 0; i < width; ++i) {
            const int64_t head = i / head_dim * 2 * head_dim;
            ASSERT_EQ(first.at(t, i), x.at(t, head + i % head_dim));
            ASSERT_EQ(second.at(t, i), x.at(t, head + head_dim + i % head_dim));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera

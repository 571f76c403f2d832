#include "kernels/ops/rope.h"

#include "kernels/kernel_test_util.h"
#include "kernels/ops/rope_table.h"

namespace tessera {
namespace {

class RopeTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(RopeTest);

TEST_P(RopeTest, RotatesPairsAndCopiesTheRest) {
  TestRandom random(1);
  for (const bool neox : {false, true}) {
    for (const auto& [head_dim, n_pairs] : std::vector<std::pair<int64_t, int64_t>>{
             {2, 1}, {7, 3}, {64, 32}, {80, 16}, {96, 48}, {128, 20}, {256, 128}}) {
      for (const int n_tokens : {0, 1, 2, 7, 33}) {
        SCOPED_TRACE(testing::Message() << "neox " << neox << " dim " << head_dim << " tokens " << n_tokens);
        const std::vector<float> table = random.normals(n_tokens * n_pairs * 2);
        std::vector<GuardedRows> inputs;
        std::vector<GuardedRows> expected;
        for (const int64_t n_heads : {9, 3}) {
          inputs.emplace_back(random, n_tokens, n_heads * head_dim, n_heads * head_dim + 1);
          expected.push_back(inputs.back());
          for (int64_t t = 0; t < n_tokens; ++t) {
            for (int64_t h = 0; h < n_heads; ++h) {
              const float* x = inputs.back().row(t) + h * head_dim;
              float* y = expected.back().row(t) + h * head_dim;
              for (int64_t i = 0; i < n_pairs; ++i) {
                const int64_t first = neox ? i : 2 * i;
                const int64_t second = neox ? i + n_pairs : 2 * i + 1;
                const float c = table[static_cast<size_t>(2 * (t * n_pairs + i))];
                const float s = table[static_cast<size_t>(2 * (t * n_pairs + i) + 1)];
                const float ac = x[first] * c;
                const float bs = x[second] * s;
                const float as = x[first] * s;
                const float bc = x[second] * c;
                y[first] = ac - bs;
                y[second] = as + bc;
              }
            }
          }
        }
        RopeArgs args;
        args.head_dim = head_dim;
        args.n_pairs = n_pairs;
        args.neox = neox;
        args.table = table.data();
        for (const int n_threads : {1, 2, 3, 7}) {
          for (const bool in_place : {false, true}) {
            std::vector<GuardedRows> x = inputs;
            std::vector<GuardedRows> y;
            args.inputs.clear();
            for (GuardedRows& input : x) {
              y.emplace_back(n_tokens, input.width(), input.stride());
            }
            for (size_t i = 0; i < x.size(); ++i) {
              GuardedRows& out = in_place ? x[i] : y[i];
              args.inputs.push_back({x[i].data(), x[i].stride(), out.data(), out.stride(), i == 0 ? 9 : 3});
            }
            run_kernel(kernel(Op::kRope), args, {n_tokens, 0, 1}, n_threads);
            for (size_t i = 0; i < x.size(); ++i) {
              ASSERT_EQ(in_place ? x[i] : y[i], expected[i]) << n_threads << " threads, in place " << in_place;
            }
          }
        }
      }
    }
  }
}

TEST_P(RopeTest, TableHoldsCosinesAndSines) {
  const std::vector<int32_t> positions = {0, 1, 17, 4095, 131071};
  const auto n_tokens = static_cast<int>(positions.size());
  for (const int64_t n_pairs : {1, 3, 32, 64}) {
    std::vector<float> inv_freq;
    for (int64_t i = 0; i < n_pairs; ++i) {
      inv_freq.push_back(static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(n_pairs))));
    }
    for (const int n_threads : {1, 2, 3, 7}) {
      GuardedRows table(n_tokens, 2 * n_pairs, 2 * n_pairs);
      const RopeTableArgs args{positions.data(), inv_freq.data(), n_pairs, 1.25F, table.data()};
      run_kernel(kernel(Op::kRopeTable), args, {n_tokens, 0, 1}, n_threads);
      ASSERT_TRUE(table.gaps_intact());
      for (int64_t t = 0; t < n_tokens; ++t) {
        for (int64_t i = 0; i < n_pairs; ++i) {
          const float angle = static_cast<float>(positions[static_cast<size_t>(t)]) * inv_freq[static_cast<size_t>(i)];
          ASSERT_TRUE(within(table.at(t, 2 * i), std::cos(static_cast<double>(angle)) * 1.25, 1.25 * kF32Epsilon));
          ASSERT_TRUE(within(table.at(t, 2 * i + 1), std::sin(static_cast<double>(angle)) * 1.25, 1.25 * kF32Epsilon));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera

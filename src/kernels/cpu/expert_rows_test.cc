// Plans of expert rows, the copies and the sums that follow them, against the plain double loop.

#include "kernels/ops/expert_rows.h"

#include <algorithm>
#include <numeric>

#include "kernels/kernel_test_util.h"
#include "kernels/ops/expert_gather.h"
#include "kernels/ops/expert_sum.h"

namespace tessera {
namespace {

/// Random routing, and its plan for the experts that are held.
struct Batch {
  int64_t n_tokens, n_experts, n_used;
  std::vector<int32_t> routing;  // [n_tokens, 2 * n_used]
  std::vector<uint8_t> held;
  GuardedBytes bytes;
  ExpertPlan plan;

  Batch(TestRandom& random, int64_t tokens, int64_t experts, int64_t used, double share)
      : n_tokens(tokens),
        n_experts(experts),
        n_used(used),
        routing(static_cast<size_t>(tokens * 2 * used)),
        bytes(expert_plan_bytes(experts, tokens * used)) {
    std::vector<int32_t> all(static_cast<size_t>(experts));
    std::iota(all.begin(), all.end(), 0);
    for (int64_t t = 0; t < tokens; ++t) {
      for (size_t i = 0; i < static_cast<size_t>(used); ++i) {
        std::swap(all[i], all[static_cast<size_t>(random.below(experts - static_cast<int64_t>(i))) + i]);
      }
      int32_t* row = routing.data() + t * 2 * used;
      std::copy_n(all.begin(), used, row);
      std::sort(row, row + used);
      for (int64_t i = 0; i < used; ++i) {
        const float weight = random.normal();
        std::memcpy(row + used + i, &weight, sizeof(weight));
      }
    }
    for (int64_t e = 0; e < experts; ++e) {
      held.push_back(random.uniform(0, 1) < share ? 1 : 0);
    }
    plan = expert_plan(reinterpret_cast<int32_t*>(bytes.data()), experts, tokens * used);
  }

  [[nodiscard]] int32_t expert(int64_t t, int64_t i) const { return routing[static_cast<size_t>(t * 2 * n_used + i)]; }
  [[nodiscard]] float weight(int64_t t, int64_t i) const {
    return std::bit_cast<float>(routing[static_cast<size_t>(t * 2 * n_used + n_used + i)]);
  }
  [[nodiscard]] LaunchSizes sizes() const { return {static_cast<int32_t>(n_tokens), 0, 1}; }
};

class ExpertRowsTest : public CpuTableTest {
 protected:
  static void make_plan(Batch& b, int n_threads) {
    const ExpertRowsArgs args = {b.routing.data(), b.n_used, b.n_experts, b.held, b.plan};
    run_kernel(kernel(Op::kExpertRows), args, b.sizes(), n_threads);
    ASSERT_TRUE(b.bytes.guards_intact());
  }
};
TESSERA_FOR_CPU_TABLES(ExpertRowsTest);

TEST_P(ExpertRowsTest, EveryHeldPairHasARowOfItsExpert) {
  TestRandom random(1);
  for (const double share : {0.0, 0.4, 1.0}) {
    for (const int64_t n_tokens : {0, 1, 2, 33}) {
      Batch b(random, n_tokens, 13, 4, share);
      make_plan(b, 1 + static_cast<int>(n_tokens % 3));
      int64_t n_held = 0;
      std::vector<int32_t> rows;
      for (int64_t t = 0; t < n_tokens; ++t) {
        for (int64_t i = 0; i < b.n_used; ++i) {
          const int32_t row = b.plan.rows[t * b.n_used + i];
          const int32_t e = b.expert(t, i);
          if (b.held[static_cast<size_t>(e)] == 0) {
            ASSERT_EQ(row, -1);
            continue;
          }
          ++n_held;
          rows.push_back(row);
          ASSERT_TRUE(row >= b.plan.begins[e] && row < b.plan.begins[e + 1]);
          ASSERT_EQ(b.plan.tokens[row], t);
        }
      }
      ASSERT_EQ(b.plan.begins[0], 0);
      ASSERT_EQ(b.plan.begins[b.n_experts], n_held);
      std::ranges::sort(rows);
      ASSERT_TRUE(std::ranges::adjacent_find(rows) == rows.end()) << "a row is used twice";
      for (int64_t r = 0; r + 1 < n_held; ++r) {  // within an expert, tokens ascend
        const bool begins = std::find(b.plan.begins, b.plan.begins + b.n_experts, r + 1) != b.plan.begins + b.n_experts;
        ASSERT_TRUE(begins || b.plan.tokens[r] < b.plan.tokens[r + 1]);
      }
    }
  }
}

TEST_P(ExpertRowsTest, GatherCopiesTheRowsOfThePlanAlone) {
  TestRandom random(2);
  Batch b(random, 9, 13, 4, 0.5);
  make_plan(b, 1);
  const int64_t n_rows = b.plan.begins[b.n_experts];
  for (const int64_t width : {1, 16, 37}) {
    GuardedRows x(random, b.n_tokens, width, width);
    GuardedRows expected(b.n_tokens * b.n_used, width, width);
    for (int64_t r = 0; r < n_rows; ++r) {
      std::copy_n(x.row(b.plan.tokens[r]), width, expected.row(r));
    }
    for (const int n_threads : {1, 2, 7}) {
      GuardedRows y(b.n_tokens * b.n_used, width, width);
      const ExpertGatherArgs args = {reinterpret_cast<const std::byte*>(x.data()), width * 4,
                                     b.plan.begins + b.n_experts, b.plan.tokens,
                                     reinterpret_cast<std::byte*>(y.data())};
      run_kernel(kernel(Op::kExpertGather), args, b.sizes(), n_threads);
      ASSERT_EQ(y, expected);
    }
  }
}

TEST_P(ExpertRowsTest, SumsByCutInAscendingOrder) {
  TestRandom random(3);
  for (const int64_t width : {1, 15, 16, 33, 257, 576}) {
    Batch b(random, 5, 12, 4, 1.0);
    // The first cut's experts live elsewhere.
    std::fill_n(b.held.begin(), 5, uint8_t{0});
    make_plan(b, 1);
    GuardedRows x(random, b.n_tokens * b.n_used, width, width);
    const std::vector<std::pair<int32_t, int32_t>> cuts = {{5, 6}, {6, 12}};
    std::vector<GuardedRows> expected;
    for (const auto& [begin, end] : cuts) {
      GuardedRows y(b.n_tokens, width, width);
      for (int64_t t = 0; t < b.n_tokens; ++t) {
        for (int64_t j = 0; j < width; ++j) {
          float sum = 0;
          for (int64_t i = 0; i < b.n_used; ++i) {
            if (b.expert(t, i) >= begin && b.expert(t, i) < end) {
              sum = std::fma(b.weight(t, i), x.at(b.plan.rows[t * b.n_used + i], j), sum);
            }
          }
          y.at(t, j) = sum;
        }
      }
      expected.push_back(y);
    }
    for (const int n_threads : {1, 2, 3, 7}) {
      GuardedRows first(b.n_tokens, width, width);
      GuardedRows second(b.n_tokens, width, width);
      const ExpertSumArgs args = {
          x.data(), b.routing.data(), b.plan.rows, b.n_used, width, {{5, 6, first.data()}, {6, 12, second.data()}}};
      run_kernel(kernel(Op::kExpertSum), args, b.sizes(), n_threads);
      ASSERT_EQ(first, expected[0]) << width << " columns, " << n_threads << " threads";
      ASSERT_EQ(second, expected[1]) << width << " columns, " << n_threads << " threads";
    }
  }
}

}  // namespace
}  // namespace tessera

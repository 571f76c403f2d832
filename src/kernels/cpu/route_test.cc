// Routing against its definition in double, ties, groups, biases and numbers that are none.

#include "kernels/ops/route.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/kernel_test_util.h"

namespace tessera {
namespace {

struct Routed {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

class RouteTest : public CpuTableTest {
 protected:
  /// Routes every row of logits, with several numbers of threads.
  std::vector<Routed> run(RouteArgs args, const std::vector<std::vector<float>>& logits) {
    const auto n_tokens = static_cast<int32_t>(logits.size());
    args.n_experts = static_cast<int64_t>(logits[0].size());
    std::vector<float> flat;
    for (const std::vector<float>& row : logits) {
      flat.insert(flat.end(), row.begin(), row.end());
    }
    args.logits = flat.data();
    const int64_t bytes = n_tokens * 2 * args.n_used * 4;
    GuardedBytes first(bytes);
    for (const int n_threads : {1, 2, 3, 7}) {
      GuardedBytes routing(bytes);
      args.routing = reinterpret_cast<int32_t*>(routing.data());
      run_kernel(kernel(Op::kRoute), args, {n_tokens, 0, 1}, n_threads);
      EXPECT_TRUE(routing.guards_intact());
      if (n_threads == 1) {
        first = routing;
      }
      EXPECT_EQ(routing, first);
    }
    std::vector<Routed> result;
    for (int64_t t = 0; t < n_tokens; ++t) {
      const auto* row = reinterpret_cast<const int32_t*>(first.data()) + t * 2 * args.n_used;
      Routed one;
      one.experts.assign(row, row + args.n_used);
      one.weights.resize(static_cast<size_t>(args.n_used));
      std::memcpy(one.weights.data(), row + args.n_used, one.weights.size() * 4);
      result.push_back(one);
    }
    return result;
  }
};
TESSERA_FOR_CPU_TABLES(RouteTest);

double probability(RouteGating gating, const std::vector<float>& logits, size_t e) {
  const double x = logits[e];
  double sum = 0;
  for (const float l : logits) {
    sum += std::exp(l - x);
  }
  switch (gating) {
    case RouteGating::kSoftmax: return 1 / sum;
    case RouteGating::kSigmoid: return 1 / (1 + std::exp(-x));
    case RouteGating::kSqrtSoftplus: return std::sqrt(std::log1p(std::exp(x)));
    case RouteGating::kSoftmaxOfChosen: break;
  }
  return x;
}

TEST_P(RouteTest, FollowsItsDefinition) {
  TestRandom random(1);
  for (const RouteGating gating :
       {RouteGating::kSoftmax, RouteGating::kSigmoid, RouteGating::kSoftmaxOfChosen, RouteGating::kSqrtSoftplus}) {
    for (const bool normalize : {false, true}) {
      std::vector<std::vector<float>> logits;
      for (int t = 0; t < 9; ++t) {
        logits.push_back(random.normals(37, 3));
      }
      RouteArgs args;
      args.n_used = 5;
      args.gating = gating;
      args.normalize = normalize;
      args.scale = 2.5F;
      const std::vector<Routed> routed = run(args, logits);
      for (size_t t = 0; t < logits.size(); ++t) {
        std::vector<int32_t> order(37);
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
          return logits[t][static_cast<size_t>(a)] > logits[t][static_cast<size_t>(b)];
        });
        std::vector<int32_t> chosen(order.begin(), order.begin() + 5);
        std::ranges::sort(chosen);
        ASSERT_EQ(routed[t].experts, chosen);
        double sum = 0;
        std::vector<double> weights;
        for (const int32_t e : chosen) {
          const double p = probability(gating, logits[t], static_cast<size_t>(e));
          weights.push_back(gating == RouteGating::kSoftmaxOfChosen ? std::exp(p) : p);
          sum += weights.back();
        }
        for (size_t i = 0; i < 5; ++i) {
          const double whole = normalize || gating == RouteGating::kSoftmaxOfChosen ? sum : 1;
          const double exact = 2.5 * weights[i] / whole;
          ASSERT_TRUE(within(routed[t].weights[i], exact, 80 * kF32Epsilon * std::fabs(exact)));
        }
      }
    }
  }
}

TEST_P(RouteTest, EqualScoresGoToTheLowestExpert) {
  RouteArgs args;
  args.n_used = 3;
  const std::vector<Routed> routed = run(args, {{1, 2, 2, 1, 2, 2}, {0, 0, 0, 0, 0, 0}, {5, 1, 1, 1, 1, 5}});
  EXPECT_EQ(routed[0].experts, (std::vector<int32_t>{1, 2, 4}));
  EXPECT_EQ(routed[1].experts, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(routed[2].experts, (std::vector<int32_t>{0, 1, 5}));
}

TEST_P(RouteTest, ASelectionBiasChoosesAndDoesNotWeigh) {
  const std::vector<float> bias = {0, 0, 0, 9};
  RouteArgs args;
  args.n_used = 2;
  args.gating = RouteGating::kSigmoid;
  args.selection_bias = bias.data();
  const std::vector<Routed> routed = run(args, {{3, 1, 2, -4}});
  EXPECT_EQ(routed[0].experts, (std::vector<int32_t>{0, 3}));
  EXPECT_TRUE(within(routed[0].weights[1], 1 / (1 + std::exp(4.0)), 1e-8));
  args.bias = bias.data();
  EXPECT_TRUE(within(run(args, {{3, 1, 2, -4}})[0].weights[1], 1 / (1 + std::exp(-5.0)), 1e-7));
}

TEST_P(RouteTest, OnlyTheBestGroupsAreCandidates) {
  RouteArgs args;
  args.n_used = 2;
  args.gating = RouteGating::kSoftmaxOfChosen;
  args.n_groups = 3;
  args.n_groups_used = 1;
  // Sums of the two largest: 9.5, 10, 10: the lower group wins, though the largest score lies elsewhere.
  const std::vector<Routed> routed = run(args, {{9, 0.5F, 0, 5, 5, 0, 6, 4, 4}});
  EXPECT_EQ(routed[0].experts, (std::vector<int32_t>{3, 4}));
  args.n_groups_used = 2;
  EXPECT_EQ(run(args, {{9, 0.5F, 0, 5, 5, 0, 6, 4, 4}})[0].experts, (std::vector<int32_t>{3, 6}));
}

TEST_P(RouteTest, ChoosesDistinctExpertsWhateverTheNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const RouteGating gating : {RouteGating::kSoftmax, RouteGating::kSigmoid, RouteGating::kSoftmaxOfChosen}) {
    RouteArgs args;
    args.n_used = 3;
    args.gating = gating;
    // All experts are candidates; those of two groups of two; those of three groups of one.
    for (const auto& [n_groups, n_groups_used] : {std::pair(1, 1), std::pair(3, 2), std::pair(6, 3)}) {
      args.n_groups = n_groups;
      args.n_groups_used = n_groups_used;
      for (const Routed& r : run(args, {{nan, nan, nan, nan, nan, nan},
                                        {-inf, -inf, -inf, -inf, -inf, -inf},
                                        {inf, nan, -inf, inf, nan, nan},
                                        {nan, nan, nan, nan, 1, -inf}})) {
        ASSERT_TRUE(r.experts[0] >= 0 && r.experts[0] < r.experts[1] && r.experts[1] < r.experts[2] && r.experts[2] < 6)
            << n_groups << " groups: " << r.experts[0] << " " << r.experts[1] << " " << r.experts[2];
      }
    }
  }
}

TEST_P(RouteTest, AVanishingSumIsNotDividedBy) {
  RouteArgs args;
  args.n_used = 1;
  args.gating = RouteGating::kSigmoid;
  args.normalize = true;
  EXPECT_TRUE(within(run(args, {{-20, -30}})[0].weights[0], std::exp(-20.0) / 0x1p-14, 1e-9));
}

}  // namespace
}  // namespace tessera

#include "kernels/ops/expert_rows.h"

#include <algorithm>

#include "device/cpu/cpu_launch.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace {

/// A counting sort by one thread: a few thousand pairs at most.
void expert_rows(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  if (static_cast<const CpuLaunch*>(launch)->thread != 0) {
    return;
  }
  const auto& args = *static_cast<const ExpertRowsArgs*>(raw_args);
  const ExpertPlan& plan = args.plan;
  const auto held = [&](int32_t expert) { return args.held[static_cast<size_t>(expert)] != 0; };
  std::fill_n(plan.begins, args.n_experts + 1, 0);
  const auto for_each_pair = [&](auto visit) {
    for (int64_t t = 0; t < sizes.n_tokens; ++t) {
      for (int64_t i = 0; i < args.n_used; ++i) {
        visit(t, t * args.n_used + i, args.routing[t * 2 * args.n_used + i]);
      }
    }
  };
  for_each_pair([&](int64_t, int64_t, int32_t expert) { plan.begins[expert + 1] += held(expert) ? 1 : 0; });
  for (int64_t e = 0; e < args.n_experts; ++e) {
    plan.begins[e + 1] += plan.begins[e];
  }
  // Each begin moves to its end, which is the next one's begin.
  for_each_pair([&](int64_t token, int64_t pair, int32_t expert) {
    plan.rows[pair] = -1;
    if (held(expert)) {
      const int32_t row = plan.begins[expert]++;
      plan.rows[pair] = row;
      plan.tokens[row] = static_cast<int32_t>(token);
    }
  });
  std::copy_backward(plan.begins, plan.begins + args.n_experts, plan.begins + args.n_experts + 1);
  plan.begins[0] = 0;
}

}  // namespace

/// One kernel for every set: it only counts.
void append_expert_rows_rows(CpuKernelSet /*set*/, CpuIsa /*isa*/, std::vector<KernelRow>& rows) {
  rows.push_back({Op::kExpertRows, DType::kF32, DType::kF32, expert_rows});
}

}  // namespace tessera

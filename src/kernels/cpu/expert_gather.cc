#include "kernels/ops/expert_gather.h"

#include <algorithm>

#include "device/cpu/cpu_launch.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace {

void expert_gather(void* launch, const void* raw_args, const LaunchSizes& /*sizes*/) {
  const auto& args = *static_cast<const ExpertGatherArgs*>(raw_args);
  const CpuShare rows = cpu_share(*static_cast<const CpuLaunch*>(launch), *args.n_rows);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    std::copy_n(args.x + args.tokens[r] * args.row_bytes, args.row_bytes, args.y + r * args.row_bytes);
  }
}

}  // namespace

/// One kernel for every set: it only copies.
void append_expert_gather_rows(CpuKernelSet /*set*/, CpuIsa /*isa*/, std::vector<KernelRow>& rows) {
  rows.push_back({Op::kExpertGather, DType::kF32, DType::kF32, expert_gather});
}

}  // namespace tessera

#include "kernels/ops/split_heads.h"

#include <cstring>

#include "device/cpu/cpu_launch.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace {

void split_heads(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const SplitHeadsArgs*>(raw_args);
  const CpuShare share = cpu_share(*static_cast<const CpuLaunch*>(launch), sizes.n_tokens * args.n_heads);
  const size_t bytes = static_cast<size_t>(args.head_dim) * sizeof(float);
  for (int64_t head = share.begin; head < share.end; ++head) {
    const float* x = args.x + head * 2 * args.head_dim;
    std::memcpy(args.first + head * args.head_dim, x, bytes);
    std::memcpy(args.second + head * args.head_dim, x + args.head_dim, bytes);
  }
}

}  // namespace

void append_split_heads_rows(CpuKernelSet /*set*/, CpuIsa /*isa*/, std::vector<KernelRow>& rows) {
  rows.push_back({Op::kSplitHeads, DType::kF32, DType::kF32, split_heads});
}

}  // namespace tessera

#include "kernels/ops/rope_table.h"

#include <cmath>

#include "device/cpu/cpu_launch.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace {

void rope_table(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const RopeTableArgs*>(raw_args);
  const CpuShare share = cpu_share(*static_cast<const CpuLaunch*>(launch), sizes.n_tokens * args.n_pairs);
  for (int64_t item = share.begin; item < share.end; ++item) {
    const auto position = static_cast<float>(args.positions[item / args.n_pairs]);
    const float angle = position * args.inv_freq[item % args.n_pairs];
    args.table[2 * item] = static_cast<float>(std::cos(static_cast<double>(angle)) * args.magnitude);
    args.table[2 * item + 1] = static_cast<float>(std::sin(static_cast<double>(angle)) * args.magnitude);
  }
}

}  // namespace

/// One kernel for every set: it runs once per batch.
void append_rope_table_rows(CpuKernelSet /*set*/, CpuIsa /*isa*/, std::vector<KernelRow>& rows) {
  rows.push_back({Op::kRopeTable, DType::kF32, DType::kF32, rope_table});
}

}  // namespace tessera

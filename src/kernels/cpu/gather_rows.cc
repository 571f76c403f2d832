#include "kernels/ops/gather_rows.h"

#include <algorithm>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/spans.h"

namespace tessera {
namespace {

void gather_rows(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const GatherRowsArgs*>(raw_args);
  for_each_span(launch, sizes.n_outputs, args.width, [&](int64_t row, int64_t begin, int64_t end) {
    const float* x = args.x + args.rows[row] * args.x_stride;
    std::copy(x + begin, x + end, args.y + row * args.y_stride + begin);
  });
}

}  // namespace

/// One kernel for every set: it only copies.
void append_gather_rows_rows(CpuKernelSet /*set*/, CpuIsa /*isa*/, std::vector<KernelRow>& rows) {
  rows.push_back({Op::kGatherRows, DType::kF32, DType::kF32, gather_rows});
}

}  // namespace tessera

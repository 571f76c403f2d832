#include "kernels/ops/gate_rows.h"

#include <cmath>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/spans.h"

namespace tessera {
namespace {

void gate_rows(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const GateRowsArgs*>(raw_args);
  for_each_span(launch, sizes.n_tokens, args.width, [&](int64_t row, int64_t begin, int64_t end) {
    const float factor = 1 / (1 + std::exp(-args.gate[row]));
    for (int64_t i = row * args.width + begin; i < row * args.width + end; ++i) {
      args.y[i] = args.x[i] * factor;
    }
  });
}

}  // namespace

/// One kernel for every set: one multiplication per element.
void append_gate_rows_rows(CpuKernelSet /*set*/, CpuIsa /*isa*/, std::vector<KernelRow>& rows) {
  rows.push_back({Op::kGateRows, DType::kF32, DType::kF32, gate_rows});
}

}  // namespace tessera

#include "kernels/ops/delta_gates.h"

#include <cmath>

#include "device/cpu/cpu_launch.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace {

/// One body for every set and instruction set: a few numbers per token, in double.
void delta_gates(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const DeltaGatesArgs*>(raw_args);
  const RecFormat& format = args.format;
  const CpuShare share = cpu_share(*static_cast<const CpuLaunch*>(launch), sizes.n_tokens);
  for (int64_t row = share.begin; row < share.end; ++row) {
    for (const RecPanel& panel : args.panels) {
      for (int64_t h = 0; h < panel.n_groups * format.n_rep; ++h) {
        const int64_t at = row * args.stride + panel.group_begin * format.n_rep + h;
        const int64_t head = rec_layer_head(format, panel, h);
        const double x = args.alpha[at] + args.dt_bias[head];
        const double softplus = x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
        args.log_decay[at] = args.a[head] * static_cast<float>(softplus);
        args.strength[at] = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(args.beta[at]))));
      }
    }
  }
}

}  // namespace

void append_delta_gates_rows(CpuKernelSet /*set*/, CpuIsa /*isa*/, std::vector<KernelRow>& rows) {
  rows.push_back({Op::kDeltaGates, DType::kF32, DType::kF32, delta_gates});
}

}  // namespace tessera

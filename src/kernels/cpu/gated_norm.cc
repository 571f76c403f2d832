#include "kernels/ops/gated_norm.h"

#include <cmath>

#include "kernels/cpu/gated_norm_body.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace avx2 {
KernelBody gated_norm;
}
namespace avx512 {
KernelBody gated_norm;
}
namespace {

/// The readable reference: sums and silu in double.
void gated_norm_scalar(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const GatedNormArgs*>(raw_args);
  const CpuShare share = cpu_share(*static_cast<const CpuLaunch*>(launch), sizes.n_tokens * args.n_groups);
  for (int64_t item = share.begin; item < share.end; ++item) {
    const int64_t row = item / args.n_groups;
    const int64_t column = item % args.n_groups * args.width;
    const float* x = args.x + row * args.x_stride + column;
    const float* z = args.z + row * args.z_stride + column;
    double squares = 0;
    for (int64_t i = 0; i < args.width; ++i) {
      squares += static_cast<double>(x[i]) * x[i];
    }
    const double factor = 1 / std::sqrt(squares / static_cast<double>(args.width) + args.eps);
    for (int64_t i = 0; i < args.width; ++i) {
      const double gate = z[i] / (1 + std::exp(-static_cast<double>(z[i])));
      args.y[row * args.y_stride + column + i] = static_cast<float>(x[i] * factor * args.weight[i] * gate);
    }
  }
}

}  // namespace

void append_gated_norm_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows) {
  const KernelFn fast = pick_kernel(isa, portable::gated_norm, avx2::gated_norm, avx512::gated_norm);
  rows.push_back({Op::kGatedNorm, DType::kF32, DType::kF32, set == CpuKernelSet::kScalar ? gated_norm_scalar : fast});
}

}  // namespace tessera

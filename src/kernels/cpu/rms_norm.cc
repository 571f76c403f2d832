#include "kernels/ops/rms_norm.h"

#include <cmath>

#include "kernels/cpu/rms_norm_body.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace avx2 {
KernelBody rms_norm;
}
namespace avx512 {
KernelBody rms_norm;
}
namespace {

/// The readable reference: sums in double.
void rms_norm_scalar(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const RmsNormArgs*>(raw_args);
  const CpuShare share =
      cpu_share(*static_cast<const CpuLaunch*>(launch), args.per_output ? sizes.n_outputs : sizes.n_tokens);
  for (int64_t row = share.begin; row < share.end; ++row) {
    for (int64_t group = 0; group < args.n_groups; ++group) {
      const float* x = args.x + row * args.x_stride + group * args.width;
      float* y = args.y + row * args.y_stride + group * args.width;
      double squares = 0;
      for (int64_t i = 0; i < args.width; ++i) {
        squares += static_cast<double>(x[i]) * x[i];
      }
      const double factor = 1.0 / std::sqrt(squares / static_cast<double>(args.width) + args.eps);
      for (int64_t i = 0; i < args.width; ++i) {
        y[i] = static_cast<float>(x[i] * factor) * (args.weight != nullptr ? args.weight[i] : 1.0F);
      }
    }
    if (args.q8 != nullptr) {
      const int64_t columns = args.n_groups * args.width;
      portable::quantize_columns(args.y + row * args.y_stride, args.q8, row, columns, 0, columns);
    }
  }
}

}  // namespace

void append_rms_norm_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows) {
  const KernelFn fast = pick_kernel(isa, portable::rms_norm, avx2::rms_norm, avx512::rms_norm);
  rows.push_back({Op::kRmsNorm, DType::kF32, DType::kF32, set == CpuKernelSet::kScalar ? rms_norm_scalar : fast});
}

}  // namespace tessera

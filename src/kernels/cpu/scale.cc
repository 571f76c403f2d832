#include "kernels/ops/scale.h"

#include <cmath>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/scale_body.h"

namespace tessera {
namespace avx2 {
KernelBody scale;
}
namespace avx512 {
KernelBody scale;
}
namespace {

/// The readable reference: the cap in double.
void scale_scalar(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const ScaleArgs*>(raw_args);
  const int64_t n_rows = args.per_output ? sizes.n_outputs : sizes.n_tokens;
  for_each_span(launch, n_rows, args.width, [&](int64_t row, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float v = args.x[row * args.x_stride + i] * args.scale;
      const double cap = args.softcap;
      args.y[row * args.y_stride + i] = cap > 0 ? static_cast<float>(cap * std::tanh(v / cap)) : v;
    }
  });
}

}  // namespace

void append_scale_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows) {
  const KernelFn fast = pick_kernel(isa, portable::scale, avx2::scale, avx512::scale);
  rows.push_back({Op::kScale, DType::kF32, DType::kF32, set == CpuKernelSet::kScalar ? scale_scalar : fast});
}

}  // namespace tessera

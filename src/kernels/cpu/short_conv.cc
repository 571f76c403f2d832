#include "kernels/ops/short_conv.h"

#include <cmath>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/short_conv_body.h"

namespace tessera {
namespace avx2 {
KernelBody short_conv;
}
namespace avx512 {
KernelBody short_conv;
}
namespace {

using portable::ConvSpan;
using portable::find_taps;
using portable::for_each_conv_span;

/// The readable reference: sums and silu in double.
void short_conv_scalar(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const ShortConvArgs*>(raw_args);
  for_each_conv_span(launch, args, sizes, [&](const RecRun& run, const ConvSpan& span) {
    const float* taps[kConvMaxTaps];
    for (int64_t i = 0; i < run.n_rows; ++i) {
      find_taps(args, run, span, i, taps);
      for (int64_t c = 0; c < span.size; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < args.format.n_taps; ++j) {
          const double weight = args.weight[j * span.n_channels + span.channel + c];
          sum += taps[j] == nullptr ? 0 : weight * taps[j][c];
        }
        args.y[args.rows.rows[run.row_begin + i] * args.y_stride + span.column + c] =
            static_cast<float>(sum / (1 + std::exp(-sum)));
      }
    }
  });
}

}  // namespace

void append_short_conv_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows) {
  const KernelFn fast = pick_kernel(isa, portable::short_conv, avx2::short_conv, avx512::short_conv);
  rows.push_back({Op::kShortConv, DType::kF32, DType::kF32, set == CpuKernelSet::kScalar ? short_conv_scalar : fast});
}

}  // namespace tessera

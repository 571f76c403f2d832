#pragma once
// short_conv of the fast set (kernels/ops/short_conv.h), compiled once per instruction set (see vec.h).

#include <cstdint>
#include <cstring>

#include "device/device.h"
#include "kernels/cpu/rec_share.h"
#include "kernels/cpu/vec_math.h"
#include "kernels/ops/short_conv.h"

namespace tessera::TESSERA_ISA {

/// n channels of one token. taps: the inputs by tap, null where there is none; weight: [n_taps, weight_stride].
inline void convolve(const float* const* taps, int64_t n_taps, const float* weight, int64_t weight_stride, float* y,
                     int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    F32x16 sum = zero();
    for (int64_t j = 0; j < n_taps; ++j) {
      if (taps[j] != nullptr) {
        sum = fma(load_n(weight + j * weight_stride + i, n - i), load_n(taps[j] + i, n - i), sum);
      }
    }
    store_n(y + i, silu(sum), n - i);
  }
}

void short_conv(void* launch, const void* raw_args, const LaunchSizes& sizes) {  // NOLINT(misc-definitions-in-headers)
  const auto& args = *static_cast<const ShortConvArgs*>(raw_args);
  for_each_conv_span(launch, args, sizes, [&](const RecRun& run, const ConvSpan& span) {
    const float* taps[kConvMaxTaps];
    for (int64_t i = 0; i < run.n_rows; ++i) {
      find_taps(args, run, span, i, taps);
      float* y = args.y + args.rows.rows[run.row_begin + i] * args.y_stride + span.column;
      convolve(taps, args.format.n_taps, args.weight + span.channel, span.n_channels, y, span.size);
    }
  });
}

}  // namespace tessera::TESSERA_ISA

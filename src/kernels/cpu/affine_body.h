#pragma once
// affine (kernels/ops/affine.h), compiled once per instruction set (see vec.h).

#include <cstdint>

#include "device/device.h"
#include "kernels/cpu/spans.h"
#include "kernels/cpu/vec.h"
#include "kernels/ops/affine.h"

namespace tessera::TESSERA_ISA {

void affine(void* launch, const void* raw_args, const LaunchSizes& sizes) {  // NOLINT(misc-definitions-in-headers)
  const auto& args = *static_cast<const AffineArgs*>(raw_args);
  const int64_t n_rows = args.per_output ? sizes.n_outputs : sizes.n_tokens;
  for_each_span(launch, n_rows, args.width, [&](int64_t row, int64_t begin, int64_t end) {
    const float* x = args.x + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    for (int64_t i = begin; i < end; i += 16) {
      F32x16 v = load_n(x + i, end - i);
      if (args.scale != nullptr) {
        v = v * splat(*args.scale);
      }
      if (args.bias != nullptr) {
        v = v + load_n(args.bias + i, end - i);
      }
      store_n(y + i, v, end - i);
    }
  });
}

}  // namespace tessera::TESSERA_ISA

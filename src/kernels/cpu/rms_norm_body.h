#pragma once
// rms_norm of the fast set (kernels/ops/rms_norm.h), compiled once per instruction set (see vec.h).

#include <cstdint>

#include "device/cpu/cpu_launch.h"
#include "device/device.h"
#include "kernels/cpu/quantize_block.h"
#include "kernels/cpu/rms_norm_group.h"
#include "kernels/cpu/vec.h"
#include "kernels/ops/rms_norm.h"

namespace tessera::TESSERA_ISA {

/// x, weight (or null), y: [n] f32.
inline void normalize(const float* x, const float* weight, float* y, int64_t n, float eps) {
  const F32x16 factor = rms_factor(x, n, eps);
  const auto at = [&](int64_t i, int64_t present) {
    F32x16 v = load_n(x + i, present) * factor;
    if (weight != nullptr) {
      v = v * load_n(weight + i, present);
    }
    store_n(y + i, v, present);
  };
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    at(i, 16);
  }
  if (i < n) {
    at(i, n - i);
  }
}

void rms_norm(void* launch, const void* raw_args, const LaunchSizes& sizes) {  // NOLINT(misc-definitions-in-headers)
  const auto& args = *static_cast<const RmsNormArgs*>(raw_args);
  const int64_t n_rows = args.per_output ? sizes.n_outputs : sizes.n_tokens;
  // A row that is also quantised stays with one thread: blocks may span groups.
  const int64_t per_item = args.q8 != nullptr ? args.n_groups : 1;
  const int64_t items_per_row = args.n_groups / per_item;
  const CpuShare share = cpu_share(*static_cast<const CpuLaunch*>(launch), n_rows * items_per_row);
  for (int64_t item = share.begin; item < share.end; ++item) {
    const int64_t row = item / items_per_row;
    const int64_t first = item % items_per_row * per_item;
    for (int64_t group = first; group < first + per_item; ++group) {
      const int64_t column = group * args.width;
      normalize(args.x + row * args.x_stride + column, args.weight, args.y + row * args.y_stride + column, args.width,
                args.eps);
    }
    if (args.q8 != nullptr) {
      const int64_t columns = args.n_groups * args.width;
      quantize_columns(args.y + row * args.y_stride, args.q8, row, columns, 0, columns);
    }
  }
}

}  // namespace tessera::TESSERA_ISA

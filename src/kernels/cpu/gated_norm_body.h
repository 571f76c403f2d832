#pragma once
// gated_norm of the fast set (kernels/ops/gated_norm.h), compiled once per instruction set (see vec.h).

#include <cstdint>

#include "device/cpu/cpu_launch.h"
#include "device/device.h"
#include "kernels/cpu/rms_norm_group.h"
#include "kernels/cpu/vec_math.h"
#include "kernels/ops/gated_norm.h"

namespace tessera::TESSERA_ISA {

void gated_norm(void* launch, const void* raw_args, const LaunchSizes& sizes) {  // NOLINT(misc-definitions-in-headers)
  const auto& args = *static_cast<const GatedNormArgs*>(raw_args);
  const CpuShare share = cpu_share(*static_cast<const CpuLaunch*>(launch), sizes.n_tokens * args.n_groups);
  for (int64_t item = share.begin; item < share.end; ++item) {
    const int64_t row = item / args.n_groups;
    const int64_t column = item % args.n_groups * args.width;
    const float* x = args.x + row * args.x_stride + column;
    const float* z = args.z + row * args.z_stride + column;
    float* y = args.y + row * args.y_stride + column;
    const F32x16 factor = rms_factor(x, args.width, args.eps);
    for (int64_t i = 0; i < args.width; i += 16) {
      const int64_t n = args.width - i;
      store_n(y + i, load_n(x + i, n) * factor * load_n(args.weight + i, n) * silu(load_n(z + i, n)), n);
    }
  }
}

}  // namespace tessera::TESSERA_ISA

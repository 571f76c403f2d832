#pragma once
// gated_norm: y = rms_norm(x) * weight * silu(z), over each group of `width` consecutive elements.
//
// The norm is that of rms_norm.h, bit for bit; then one product with silu(z). y may be x or z.
// Bytes: n_tokens * n_groups * width * 12.

#include <cstdint>

namespace tessera {

struct GatedNormArgs {
  const float* x = nullptr;  // [n_tokens, x_stride] f32; row t holds n_groups groups of width
  int64_t x_stride = 0;
  const float* z = nullptr;  // [n_tokens, z_stride] f32
  int64_t z_stride = 0;
  const float* weight = nullptr;  // [width] f32
  float* y = nullptr;             // [n_tokens, y_stride] f32
  int64_t y_stride = 0;
  int64_t n_groups = 1;
  int64_t width = 0;
  float eps = 0;
};

}  // namespace tessera

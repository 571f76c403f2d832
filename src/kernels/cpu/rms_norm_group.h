#pragma once
// The factor of an RMS norm (kernels/ops/rms_norm.h), for the kernels that contain one. Included by kernel bodies.

#include <cmath>
#include <cstdint>

#include "kernels/cpu/vec.h"

namespace tessera::TESSERA_ISA {

inline F32x16 sum_squares(const float* x, int64_t n) {
  F32x16 squares = zero();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const F32x16 v = load(x + i);
    squares = fma(v, v, squares);
  }
  if (i < n) {
    const F32x16 v = load_n(x + i, n - i);
    squares = fma(v, v, squares);
  }
  return squares;
}

/// 1 / sqrt(mean(x^2) + eps) in every lane.
inline F32x16 rms_factor(const float* x, int64_t n, float eps) {
  return splat(1.0F / std::sqrt(sum(sum_squares(x, n)) / static_cast<float>(n) + eps));
}

}  // namespace tessera::TESSERA_ISA

#pragma once
// The canonical order of a float sum over n elements, so that portable, AVX2 and AVX-512 kernels give equal bits.
//
// Sixteen running sums: lane i adds elements i, i + 16, i + 32, ... in order (a missing element at the end adds
// nothing). The lanes are then added as a tree: lane i += lane i + 8 for i < 8, += lane i + 4 for i < 4,
// += lane i + 2, += lane i + 1. A product joins its lane by one fused multiply-add (std::fma).

#include <cmath>
#include <cstdint>

namespace tessera {

inline constexpr int64_t kSumLanes = 16;

/// Adds the lanes of a running sum in tree order. Overwrites lanes.
[[nodiscard]] inline float sum_lanes(float* lanes) {
  for (int64_t half = kSumLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) {
      lanes[i] += lanes[i + half];
    }
  }
  return lanes[0];
}

/// Sum of a[i] * b[i], i < n, in canonical order.
[[nodiscard]] inline float dot_canonical(const float* a, const float* b, int64_t n) {
  float lanes[kSumLanes] = {};
  for (int64_t i = 0; i < n; ++i) {
    lanes[i % kSumLanes] = std::fma(a[i], b[i], lanes[i % kSumLanes]);
  }
  return sum_lanes(lanes);
}

}  // namespace tessera

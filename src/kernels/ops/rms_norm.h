#pragma once
// rms_norm: y = x / sqrt(mean(x^2) + eps) * weight, over each group of `width` consecutive elements.
//
// Zhang and Sennrich, "Root Mean Square Layer Normalization". The sum runs in the canonical order of
// kernels/ops/summation.h, so every backend of one class gives equal bits. y may be x.
// Bytes: rows * n_groups * width * 8 + width * 4.

#include <cstdint>

namespace tessera {

struct RmsNormArgs {
  const float* x = nullptr;       // [n_tokens, x_stride] f32; row t holds n_groups groups of width
  int64_t x_stride = 0;           // floats from one row to the next
  const float* weight = nullptr;  // [width] f32, shared by all groups; null: no weight
  float* y = nullptr;             // [n_tokens, y_stride] f32
  int64_t y_stride = 0;
  int64_t n_groups = 1;  // 1 for the residual stream, heads for a per-head norm
  int64_t width = 0;
  float eps = 0;
  bool per_output = false;  // rows are outputs (n_outputs) instead of tokens
  void* q8 = nullptr;       // not null: also writes the rows quantised as Op::kQuantize would (same bits)
};

}  // namespace tessera

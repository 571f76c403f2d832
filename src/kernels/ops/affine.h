#pragma once
// affine: y = x * scale + bias with a scale per tensor and a bias per column; each operation rounded on its own, absent
// parts skipped. For the optional *.scale and *.bias of weights. y may be x. Bytes: rows * width * 8.

#include <cstdint>

namespace tessera {

struct AffineArgs {
  const float* x = nullptr;  // [n_rows, x_stride] f32
  int64_t x_stride = 0;
  float* y = nullptr;  // [n_rows, y_stride] f32
  int64_t y_stride = 0;
  int64_t width = 0;
  const float* scale = nullptr;  // [1] f32, or null
  const float* bias = nullptr;   // [width] f32, or null
  bool per_output = false;
};

}  // namespace tessera

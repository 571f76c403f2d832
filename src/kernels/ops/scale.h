#pragma once
// scale: y = softcap(x * scale), softcap(v) = cap * tanh(v / cap) when cap > 0. y may be x. Bytes: rows * width * 8.

#include <cstdint>

namespace tessera {

struct ScaleArgs {
  const float* x = nullptr;  // [n_rows, x_stride] f32
  int64_t x_stride = 0;
  float* y = nullptr;  // [n_rows, y_stride] f32
  int64_t y_stride = 0;
  int64_t width = 0;
  float scale = 1;
  float softcap = 0;  // 0: none
  bool per_output = false;
};

}  // namespace tessera

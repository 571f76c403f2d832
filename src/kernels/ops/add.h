#pragma once
// add: y = a + b, elementwise. y may be a or b. Bytes: n_tokens * width * 12.

#include <cstdint>

namespace tessera {

struct AddArgs {
  const float* a = nullptr;  // [n_tokens, width] f32, rows at a_stride
  int64_t a_stride = 0;
  const float* b = nullptr;  // [n_tokens, width] f32, rows at b_stride
  int64_t b_stride = 0;
  float* y = nullptr;  // [n_tokens, width] f32, rows at y_stride
  int64_t y_stride = 0;
  int64_t width = 0;
  bool per_output = false;
};

}  // namespace tessera

#pragma once
// gather_rows: y[i] = x[rows[i]] for the rows whose logits are wanted. Bytes: n_outputs * width * 8.

#include <cstdint>

namespace tessera {

struct GatherRowsArgs {
  const float* x = nullptr;  // [n_tokens, x_stride] f32
  int64_t x_stride = 0;
  const int32_t* rows = nullptr;  // [n_outputs] i32, each < n_tokens
  float* y = nullptr;             // [n_outputs, y_stride] f32
  int64_t y_stride = 0;
  int64_t width = 0;
};

}  // namespace tessera

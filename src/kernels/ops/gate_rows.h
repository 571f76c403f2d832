#pragma once
// gate_rows: y[t] = x[t] * sigmoid(gate[t]), one gate per row. y may be x. Bytes: n_tokens * width * 8.

#include <cstdint>

namespace tessera {

struct GateRowsArgs {
  const float* x = nullptr;     // [n_tokens, width] f32
  const float* gate = nullptr;  // [n_tokens] f32
  float* y = nullptr;           // [n_tokens, width] f32
  int64_t width = 0;
};

}  // namespace tessera

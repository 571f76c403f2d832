#pragma once
// delta_gates: how much each value head forgets and learns at each token.
//
//   log_decay = a[h] * softplus(alpha + dt_bias[h]), softplus(x) = log(1 + e^x);  strength = 1 / (1 + e^-beta)
// h is the head's number in the layer. Sum and product with a are rounded to f32, the functions evaluated in double and
// rounded once. Outputs may be the inputs. Bytes: n_tokens * value heads * 16.

#include <vector>

#include "kernels/ops/rec_layout.h"

namespace tessera {

struct DeltaGatesArgs {
  const float* alpha = nullptr;  // [n_tokens, stride] f32; row t holds this device's value heads
  const float* beta = nullptr;   // [n_tokens, stride] f32
  float* log_decay = nullptr;    // [n_tokens, stride] f32
  float* strength = nullptr;     // [n_tokens, stride] f32
  int64_t stride = 0;
  const float* dt_bias = nullptr;  // [value heads of the layer] f32
  const float* a = nullptr;        // [value heads of the layer] f32
  RecFormat format;
  std::vector<RecPanel> panels;
};

}  // namespace tessera

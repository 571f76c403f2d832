#pragma once
// short_conv: causal depthwise convolution over the last n_taps tokens of a sequence, then silu.
//
//   y[t, c] = silu(sum over j < n_taps of weight[j, c] * x[t - (n_taps - 1) + j, c]), oldest tap first, each product
//   joined by one fused multiply-add; positions below 0 add nothing.
// Inputs before this micro-batch are read from the ring of the sequence's slot, and the last ones of this batch are
// left there, in place (kernels/ops/rec_layout.h). y must not be x. Bytes: n_tokens * channels * 8, the ring twice.

#include <vector>

#include "kernels/ops/rec_layout.h"

namespace tessera {

struct ShortConvArgs {
  const float* x = nullptr;  // [n_tokens, x_stride] f32; row t holds this device's channels
  int64_t x_stride = 0;
  float* y = nullptr;  // [n_tokens, y_stride] f32
  int64_t y_stride = 0;
  const float* weight = nullptr;  // [n_taps, channels of the layer] f32, the last row for the current token
  RecFormat format;
  std::vector<RecPanel> panels;
  RecRows rows;
};

}  // namespace tessera

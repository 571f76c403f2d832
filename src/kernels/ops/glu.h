#pragma once
// glu: y = activation(gate) * up, elementwise (Shazeer, "GLU Variants Improve Transformer").
//
//   kSilu: x / (1 + exp(-x));   kGeluTanh: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
//   kSiluClamped (gpt-oss): x / (1 + exp(-alpha x)) of x = min(gate, limit), times 1 + up clamped to +-limit
//   kSigmoid: 1 / (1 + exp(-x))
// y may be gate or up. Bytes: n_tokens * width * 12.

#include <cstdint>

namespace tessera {

enum class Activation : uint8_t { kSilu, kGeluTanh, kSigmoid, kSiluClamped };

struct GluArgs {
  const float* gate = nullptr;  // [n_tokens, gate_stride] f32
  int64_t gate_stride = 0;
  const float* up = nullptr;  // [n_tokens, up_stride] f32
  int64_t up_stride = 0;
  float* y = nullptr;  // [n_tokens, y_stride] f32; null: only q8 is wanted
  int64_t y_stride = 0;
  int64_t width = 0;
  Activation activation = Activation::kSilu;
  float limit = 0;  // of kSiluClamped
  float alpha = 0;
  const int32_t* n_rows = nullptr;  // [1] i32: rows, where they are not the batch's tokens; or null
  void* q8 = nullptr;               // not null: also writes the rows quantised as Op::kQuantize would (same bits)
};

}  // namespace tessera

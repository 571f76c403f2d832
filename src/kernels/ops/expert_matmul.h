#pragma once
// expert_matmul: multiplies every expert row by the weight of its expert; panels that share an input share a launch.
//
// For every panel, expert e and row t of [begins[e], begins[e + 1]):
//   y[t, r] = (sum over k of w_e[r, k] * x[t, k]) * scale[e] + bias_e[r]; absent parts are skipped.
// With a slot table, only experts that lie in slots are multiplied, by what their slots hold (expert_upload.h).
// The product has the bits of matmul.h for that row: which other rows and experts there are changes nothing. Bytes: the
// packed weights of experts that have rows once, activations and results once.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace tessera {

struct ExpertPanel {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<const void*> weights;  // by expert: [rows, columns] packed as WeightLayout says; null: not on this device
  const float* scale = nullptr;      // [n_experts] f32, or null
  std::vector<const float*> bias;    // by expert: [rows] f32; empty: none
  int64_t weight_offset = 0;         // in a slot, instead of weights and bias
  int64_t bias_offset = -1;          // -1: none
  float* y = nullptr;                // [rows of the plan, y_stride] f32
  int64_t y_stride = 0;
};

struct ExpertMatmulArgs {
  const float* x = nullptr;         // [rows of the plan, columns] f32, for panels whose layout reads float input
  const void* q8 = nullptr;         // [rows of the plan, q8_row_bytes(columns)], for panels that read quantised input
  const int32_t* begins = nullptr;  // [n_experts + 1] i32, of the plan
  int64_t n_experts = 0;
  const int32_t* table = nullptr;    // [n_experts] i32: the expert's slot, or -1; null: weights and bias say where
  const std::byte* slots = nullptr;  // [slots, slot_bytes]
  int64_t slot_bytes = 0;
  std::vector<ExpertPanel> panels;  // equal columns
};

}  // namespace tessera

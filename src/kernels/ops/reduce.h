#pragma once
// reduce: adds per-cut partial sums in the canonical tree order, then scale, bias and residual.
//
// `leaves` and `order` are one postfix expression: an entry i >= 0 of `order` pushes leaves[i], kReduceAdd replaces the
// two topmost by their sum (lower + upper). Lowering makes it from the tree over cut indices (program/lower), so every
// distribution of cuts gives equal bits. With one leaf it is a copy with the epilogue.
//   y[t, j] = residual[t, j] + (sum * scale + bias[j]); each operation rounded on its own; absent parts are skipped.
// y may be residual or a leaf. Bytes: n_tokens * width * 4 * (leaves + residual + 1).

#include <cstdint>
#include <vector>

namespace tessera {

inline constexpr int8_t kReduceAdd = -1;

struct ReduceLeaf {
  const float* data = nullptr;  // [n_tokens, stride] f32
  int64_t stride = 0;
};

struct ReduceArgs {
  std::vector<ReduceLeaf> leaves;
  std::vector<int8_t> order;  // postfix; one value remains
  int64_t width = 0;
  const float* scale = nullptr;     // [1] f32, or null
  const float* bias = nullptr;      // [width] f32, or null
  const float* residual = nullptr;  // [n_tokens, residual_stride] f32, or null
  int64_t residual_stride = 0;
  float* y = nullptr;  // [n_tokens, y_stride] f32
  int64_t y_stride = 0;
};

}  // namespace tessera

#pragma once
// rope: rotary position embedding of heads (Su et al., "RoFormer").
//
// Rotates the first 2 * n_pairs elements of each head by the angles of a rope_table; the rest is copied.
//   norm:  pair i is (x[2i], x[2i + 1]);  neox: pair i is (x[i], x[i + n_pairs]).
//   (a, b) -> (a * cos - b * sin, a * sin + b * cos), each product rounded, no fma.
// y may be x. Several inputs (q and k) share one launch. Bytes: n_tokens * heads * head_dim * 8.

#include <cstdint>
#include <vector>

namespace tessera {

struct RopeInput {
  const float* x = nullptr;  // [n_tokens, x_stride] f32; row t holds n_heads heads of head_dim
  int64_t x_stride = 0;
  float* y = nullptr;  // [n_tokens, y_stride] f32
  int64_t y_stride = 0;
  int64_t n_heads = 0;
};

struct RopeArgs {
  std::vector<RopeInput> inputs;
  int64_t head_dim = 0;
  int64_t n_pairs = 0;
  bool neox = false;
  const float* table = nullptr;  // [n_tokens, n_pairs, 2] f32
};

}  // namespace tessera

#pragma once
// split_heads: parts the two halves of each head, for a query and its gate that one product makes side by side.
//
//   first[t, h] = x[t, h][0 .. head_dim), second[t, h] = x[t, h][head_dim .. 2 * head_dim)
// Bytes: n_tokens * n_heads * head_dim * 16.

#include <cstdint>

namespace tessera {

struct SplitHeadsArgs {
  const float* x = nullptr;  // [n_tokens, n_heads, 2 * head_dim] f32
  float* first = nullptr;    // [n_tokens, n_heads, head_dim] f32
  float* second = nullptr;   // [n_tokens, n_heads, head_dim] f32
  int64_t n_heads = 0;
  int64_t head_dim = 0;
};

}  // namespace tessera

#pragma once
// rope_table: cosines and sines of this batch's positions, once per batch and rope setting.
//
// table[t, i] = (cos(a) * magnitude, sin(a) * magnitude), a = positions[t] * inv_freq[i] in f32 (one rounding), cos and
// sin of that f32 evaluated in double and rounded to f32. All scalings (linear, llama-3 factors, YaRN) are folded into
// inv_freq and magnitude by the model. Bytes: n_tokens * n_pairs * 8.

#include <cstdint>

namespace tessera {

struct RopeTableArgs {
  const int32_t* positions = nullptr;  // [n_tokens] i32
  const float* inv_freq = nullptr;     // [n_pairs] f32
  int64_t n_pairs = 0;
  float magnitude = 1;
  float* table = nullptr;  // [n_tokens, n_pairs, 2] f32
};

}  // namespace tessera

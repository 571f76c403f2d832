#pragma once
// expert_sum: what a token's experts of one cut add up to: y_c[t] = sum of weight * x[row] over the chosen experts of
// cut c, in ascending order of experts, each product joined by one fused multiply-add to a sum that starts at 0.
// Bytes: (rows + n_tokens * pieces) * width * 4.

#include <cstdint>
#include <vector>

namespace tessera {

struct ExpertSumPiece {
  int32_t expert_begin = 0;  // the cut's experts
  int32_t expert_end = 0;
  float* y = nullptr;  // [n_tokens, width] f32
};

struct ExpertSumArgs {
  const float* x = nullptr;          // [rows of the plan, width] f32
  const int32_t* routing = nullptr;  // [n_tokens, 2 * n_used], of route
  const int32_t* rows = nullptr;     // [n_tokens, n_used] i32, of the plan
  int64_t n_used = 0;
  int64_t width = 0;
  std::vector<ExpertSumPiece> pieces;  // all of whose experts are held
};

}  // namespace tessera

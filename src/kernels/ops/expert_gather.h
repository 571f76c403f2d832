#pragma once
// expert_gather: copies each expert row's token: y[r] = x[tokens[r]] for the rows of a plan (expert_rows.h), which are
// floats or quantised rows. Bytes: rows * row_bytes * 2.

#include <cstddef>
#include <cstdint>

namespace tessera {

struct ExpertGatherArgs {
  const std::byte* x = nullptr;  // [n_tokens, row_bytes]
  int64_t row_bytes = 0;
  const int32_t* n_rows = nullptr;  // [1] i32: begins[n_experts] of the plan
  const int32_t* tokens = nullptr;  // [n_rows] i32
  std::byte* y = nullptr;           // [n_rows, row_bytes]
};

}  // namespace tessera

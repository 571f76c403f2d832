#pragma once
// expert_rows: sorts a batch's pairs of token and chosen expert by expert, for the experts that a device holds.
//
// Each pair whose expert is held becomes one *expert row*; rows are numbered by expert, then by token. The result lies
// in device memory, so that recorded commands serve every batch. Bytes: n_tokens * n_used * 12.

#include <cstdint>
#include <vector>

namespace tessera {

/// The i32 arrays of a plan, one after another.
struct ExpertPlan {
  int32_t* begins = nullptr;  // [n_experts + 1]: rows of expert e are [begins[e], begins[e + 1]); none where not held
  int32_t* tokens = nullptr;  // [rows]: the token of each row
  int32_t* rows = nullptr;    // [n_tokens, n_used]: the row of each pair, -1 where the expert is not held
};
/// max_rows: most tokens times n_used.
[[nodiscard]] inline ExpertPlan expert_plan(int32_t* base, int64_t n_experts, int64_t max_rows) {
  return {base, base + n_experts + 1, base + n_experts + 1 + max_rows};
}
[[nodiscard]] inline int64_t expert_plan_bytes(int64_t n_experts, int64_t max_rows) {
  return (n_experts + 1 + 2 * max_rows) * static_cast<int64_t>(sizeof(int32_t));
}

struct ExpertRowsArgs {
  const int32_t* routing = nullptr;  // [n_tokens, 2 * n_used], of route
  int64_t n_used = 0;
  int64_t n_experts = 0;
  std::vector<uint8_t> held;  // by expert
  ExpertPlan plan;
};

}  // namespace tessera

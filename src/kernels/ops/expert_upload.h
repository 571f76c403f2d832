#pragma once
// expert_upload: brings drawn experts that live elsewhere into slots, and says in a slot table where each one is.
//
// The experts that have rows in the plan are ranked in ascending order; a step brings ranks [first_rank, first_rank +
// n_slots) to slots 0, 1, ... Experts without rows are never read. Enough steps with rising first_rank serve any batch;
// those past the last drawn expert leave an empty table. Sources may be any memory that this device can read.
// Bytes: those of the drawn experts, twice.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

/// One tensor's part of every expert.
struct ExpertPart {
  std::vector<const std::byte*> sources;  // by expert; null where another device computes it
  int64_t bytes = 0;
  int64_t offset = 0;  // in a slot
};

struct ExpertUploadArgs {
  const int32_t* begins = nullptr;  // [n_experts + 1] i32, of the plan (expert_rows.h)
  int64_t n_experts = 0;
  int64_t first_rank = 0;
  int64_t n_slots = 0;
  std::vector<ExpertPart> parts;
  std::byte* slots = nullptr;  // [n_slots, slot_bytes]
  int64_t slot_bytes = 0;
  int32_t* table = nullptr;  // [n_experts] i32: the slot of each expert that this step brought, else -1
};

}  // namespace tessera

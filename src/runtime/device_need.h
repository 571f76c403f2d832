#pragma once
// What weights and a context need on one device, in bytes. Counted by memory_plan.h, shown by plans and fits.

#include <cstdint>

namespace tessera {

struct DeviceNeed {
  uint64_t weight_bytes = 0;  // tiles and replicas
  uint64_t kv_bytes = 0;
  uint64_t rec_bytes = 0;  // recurrent state
  uint64_t scratch_bytes = 0;
  [[nodiscard]] uint64_t total() const { return weight_bytes + kv_bytes + rec_bytes + scratch_bytes; }
};

}  // namespace tessera

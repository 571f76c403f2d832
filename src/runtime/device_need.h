#pragma once
// What weights and a context need on one device, in bytes. Counted by memory_plan.h, shown by plans and fits.

#include <algorithm>
#include <cstdint>

namespace tessera {

struct DeviceNeed {
  uint64_t weight_bytes = 0;  // tiles and replicas
  uint64_t kv_bytes = 0;
  uint64_t rec_bytes = 0;  // recurrent state
  uint64_t scratch_bytes = 0;
  [[nodiscard]] uint64_t total() const { return weight_bytes + kv_bytes + rec_bytes + scratch_bytes; }
};

/// What the device needs while a model goes from one placement to another, without staging: each kind of memory is a
/// range of its own, as large as the larger of both.
inline DeviceNeed larger_of(const DeviceNeed& a, const DeviceNeed& b) {
  return {std::max(a.weight_bytes, b.weight_bytes), std::max(a.kv_bytes, b.kv_bytes),
          std::max(a.rec_bytes, b.rec_bytes), std::max(a.scratch_bytes, b.scratch_bytes)};
}

}  // namespace tessera

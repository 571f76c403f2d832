#pragma once
// Counts the bytes of one logical device against its budget. Only this process's own use is counted, never what the
// machine has free. Shared by a device and its ranges; any thread.

#include <cstdint>
#include <mutex>
#include <string>

#include "base/status.h"

namespace tessera {

class MemoryBudget {
 public:
  MemoryBudget(std::string device, uint64_t budget_bytes) : device_(std::move(device)), budget_bytes_(budget_bytes) {}

  /// Counts `bytes` more for `purpose`. Errors: kDoesNotFit, with what is lacking, needed and free; nothing is counted.
  Status take(uint64_t bytes, const std::string& purpose);
  /// Counts `bytes` less. REQUIRES: they were taken.
  void give_back(uint64_t bytes);

  [[nodiscard]] const std::string& device() const { return device_; }
  [[nodiscard]] uint64_t budget_bytes() const { return budget_bytes_; }
  [[nodiscard]] uint64_t used_bytes() const;

 private:
  const std::string device_;
  const uint64_t budget_bytes_;
  mutable std::mutex mutex_;
  uint64_t used_bytes_ = 0;
};

/// Bytes as people read them in messages: "505 MiB", below 100 MiB with two digits after the point.
std::string mib_text(uint64_t bytes);

}  // namespace tessera

#pragma once
// Counts the bytes of one logical device against its budget. Only this process's own use is counted, never what the
// machine has free. Shared by a device and its ranges; any thread.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "device/spare_pages.h"

namespace tessera {

/// What a device holds, for all who use it: each of several models has a budget of its own over the one device.
class DeviceMemory {
 public:
  SparePages spare;

 private:
  friend class MemoryBudget;
  std::mutex mutex_;
  uint64_t used_bytes_ = 0;
};

class MemoryBudget {
 public:
  MemoryBudget(std::string device, uint64_t budget_bytes,
               std::shared_ptr<DeviceMemory> memory = std::make_shared<DeviceMemory>())
      : device_(std::move(device)), budget_bytes_(budget_bytes), memory_(std::move(memory)) {}

  /// Counts `bytes` more for `purpose`. Errors: kDoesNotFit, with what is lacking, needed and free; nothing is counted.
  Status take(uint64_t bytes, const std::string& purpose);
  /// Counts `bytes` less. REQUIRES: they were taken.
  void give_back(uint64_t bytes);
  /// What is used comes before what is spare: drops spare pages that are beyond the budget.
  void drop_excess();

  [[nodiscard]] const std::string& device() const { return device_; }
  [[nodiscard]] uint64_t budget_bytes() const { return budget_bytes_; }
  /// Of all who use the device.
  [[nodiscard]] uint64_t used_bytes() const;
  [[nodiscard]] SparePages& spare() const { return memory_->spare; }

 private:
  const std::string device_;
  const uint64_t budget_bytes_;
  const std::shared_ptr<DeviceMemory> memory_;
};

/// The memory of devices by name, for several device lists of one process: what one of them takes, the others lack.
class MemoryLedger {
 public:
  std::shared_ptr<DeviceMemory> of(const std::string& device);

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<DeviceMemory>> devices_;
};

/// Bytes as people read them in messages: "505 MiB", below 100 MiB with two digits after the point.
std::string mib_text(uint64_t bytes);

}  // namespace tessera

#include "device/memory_budget.h"

#include <algorithm>
#include <fmt/core.h>

#include "base/units.h"

namespace tessera {

Status MemoryBudget::take(uint64_t bytes, const std::string& purpose) {
  const std::lock_guard lock(memory_->mutex_);
  const uint64_t free_bytes = budget_bytes_ - std::min(memory_->used_bytes_, budget_bytes_);
  if (bytes > free_bytes) {
    return {ErrorCode::kDoesNotFit,
            fmt::format("device {} lacks {} for {}: needs {} more, has {} free of its budget of {}; raise "
                        "--device-memory or ask for less",
                        device_, mib_text(bytes - free_bytes), purpose, mib_text(bytes), mib_text(free_bytes),
                        mib_text(budget_bytes_))};
  }
  memory_->used_bytes_ += bytes;
  return {};
}

void MemoryBudget::give_back(uint64_t bytes) {
  const std::lock_guard lock(memory_->mutex_);
  CHECK(bytes <= memory_->used_bytes_);
  memory_->used_bytes_ -= bytes;
}

void MemoryBudget::drop_excess() {
  const uint64_t held = used_bytes() + spare().bytes();
  if (held > budget_bytes_) {
    spare().drop(held - budget_bytes_);
  }
}

uint64_t MemoryBudget::used_bytes() const {
  const std::lock_guard lock(memory_->mutex_);
  return memory_->used_bytes_;
}

std::shared_ptr<DeviceMemory> MemoryLedger::of(const std::string& device) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<DeviceMemory>& memory = devices_[device];
  if (memory == nullptr) {
    memory = std::make_shared<DeviceMemory>();
  }
  return memory;
}

std::string mib_text(uint64_t bytes) {
  const double n = mib(bytes);
  return n < 100 ? fmt::format("{:.2f} MiB", n) : fmt::format("{:.0f} MiB", n);
}

}  // namespace tessera

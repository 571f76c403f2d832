#include "device/memory_budget.h"

#include <fmt/core.h>

#include "base/units.h"

namespace tessera {

Status MemoryBudget::take(uint64_t bytes, const std::string& purpose) {
  const std::lock_guard lock(mutex_);
  const uint64_t free_bytes = budget_bytes_ - used_bytes_;
  if (bytes > free_bytes) {
    return {ErrorCode::kDoesNotFit,
            fmt::format("device {} lacks {} for {}: needs {} more, has {} free of its budget of {}; raise "
                        "--device-memory or ask for less",
                        device_, mib_text(bytes - free_bytes), purpose, mib_text(bytes), mib_text(free_bytes),
                        mib_text(budget_bytes_))};
  }
  used_bytes_ += bytes;
  return {};
}

void MemoryBudget::give_back(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  CHECK(bytes <= used_bytes_);
  used_bytes_ -= bytes;
}

uint64_t MemoryBudget::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

std::string mib_text(uint64_t bytes) {
  const double n = mib(bytes);
  return n < 100 ? fmt::format("{:.2f} MiB", n) : fmt::format("{:.0f} MiB", n);
}

}  // namespace tessera

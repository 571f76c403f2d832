#pragma once
// Address space of a CPU device: reserved once, backed page by page. What is given back goes to the system at once, but
// for what shrink() keeps at hand.

#include <memory>
#include <mutex>
#include <string>

#include "device/cpu/cpu_affinity.h"
#include "device/device.h"
#include "device/memory_budget.h"

namespace tessera {

class CpuMemory final : public MemoryRange {
 public:
  /// interleave_nodes: memory nodes over which pages are spread in turn; none: a page lies where it is first touched.
  /// Errors: kOutOfMemory.
  static Result<std::unique_ptr<CpuMemory>> reserve(std::shared_ptr<MemoryBudget> budget, uint64_t max_bytes,
                                                    std::string purpose, const CpuList& interleave_nodes = {});
  ~CpuMemory() override;
  CpuMemory(const CpuMemory&) = delete;
  CpuMemory& operator=(const CpuMemory&) = delete;

  [[nodiscard]] std::byte* base() const override { return base_; }
  [[nodiscard]] uint64_t reserved_bytes() const override { return reserved_bytes_; }
  [[nodiscard]] uint64_t committed_bytes() const override;
  Status resize(uint64_t bytes) override;
  void shrink(uint64_t bytes, uint64_t most_spare) override;

 private:
  CpuMemory(std::shared_ptr<MemoryBudget> budget, std::string purpose)
      : budget_(std::move(budget)), purpose_(std::move(purpose)) {}
  Status grow(uint64_t bytes);
  void give_back(uint64_t bytes, uint64_t most_spare);
  /// Where the page ends that holds the last committed byte. Spare pages of this range begin there.
  [[nodiscard]] std::byte* committed_end() const;

  const std::shared_ptr<MemoryBudget> budget_;
  const std::string purpose_;
  std::byte* base_ = nullptr;  // on a huge page's boundary
  uint64_t mapped_bytes_ = 0;  // reserved_bytes_ in whole pages, and one more: no range ends where another begins
  uint64_t reserved_bytes_ = 0;
  mutable std::mutex mutex_;
  uint64_t committed_bytes_ = 0;
  bool huge_ = false;  // huge pages were asked for
};

}  // namespace tessera

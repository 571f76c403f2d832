#pragma once
// A device that computes nothing: memory is counted but never backed (its addresses may not be touched), and its queues
// count commands instead of running them. Order, events, host calls and poison work as on any device. For planners,
// for counting what a model would do, and for simulations.

#include <atomic>
#include <memory>
#include <string>

#include "device/device.h"
#include "device/host_queue.h"
#include "device/memory_budget.h"

namespace tessera {

struct NullDeviceOptions {
  std::string name = "null:0";
  uint64_t budget_bytes = uint64_t{1} << 46;  // 64 TiB: half of a process's address space on x86-64
  std::string kernel_class = "null";
  uint64_t unit_bytes = 64 * 1024;
};

/// What a null device's queues were asked to do so far, host calls left out.
struct NullCounts {
  uint64_t n_lists = 0;
  uint64_t n_kernels = 0;
  uint64_t n_copies = 0;
  uint64_t copy_bytes = 0;
};

class NullDevice final : public Device {
 public:
  /// Errors: kOutOfMemory when no thread can be started.
  static Result<std::unique_ptr<NullDevice>> create(const NullDeviceOptions& options);

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  [[nodiscard]] uint64_t budget_bytes() const override { return budget_->budget_bytes(); }
  [[nodiscard]] uint64_t used_bytes() const override { return budget_->used_bytes(); }
  [[nodiscard]] uint64_t spare_bytes() const override { return 0; }
  Result<std::unique_ptr<MemoryRange>> reserve(uint64_t max_bytes, std::string purpose) override;
  Queue& compute_queue() override { return *queue_; }
  Result<std::unique_ptr<Queue>> make_queue() override;

  /// Counts of all commands that the queues have passed; exact after synchronize(). Skipped commands do not count.
  [[nodiscard]] NullCounts counts() const;

 private:
  explicit NullDevice(const NullDeviceOptions& options);
  Result<std::unique_ptr<HostQueue>> start_queue();
  void count(const CommandList& list, const LaunchSizes& sizes);

  DeviceInfo info_;
  const std::shared_ptr<MemoryBudget> budget_;
  std::atomic<uint64_t> n_lists_{0};
  std::atomic<uint64_t> n_kernels_{0};
  std::atomic<uint64_t> n_copies_{0};
  std::atomic<uint64_t> copy_bytes_{0};
  std::unique_ptr<HostQueue> queue_;  // last: its thread writes the counts
};

}  // namespace tessera

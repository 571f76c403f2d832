#pragma once
// A decorator around any device that makes it slow, failing or dead at chosen points, so that a missing dependency, a
// forgotten error path or a leak shows on any machine. Memory and events are the inner device's; results of a run
// without a fault are too.
//
// Commands are numbered from 0 in the order in which they are submitted, over all queues of the device: each command of
// a list and each host call is one. Delays fall between any two commands, since lists are handed on one command at a
// time. Everything follows from the seed and the order of the calls.

#include <memory>

#include "device/device.h"

namespace tessera {

struct FaultPlan {
  static constexpr int64_t kNever = -1;

  uint64_t seed = 0;
  double delay_probability = 0;        // that a command is delayed
  int max_delay_us = 0;                // delays are even between 0 and this
  int64_t fail_at_command = kNever;    // this command fails with kInternal instead of running: the queue is poisoned
  int64_t fail_from_command = kNever;  // the same for this command and all later ones, on any queue; memory still grows
  int64_t die_at_command = kNever;     // the same with kDeviceLost; from then on nothing runs on any queue or can grow
  int64_t fail_growth_at = kNever;     // the n-th resize() to a larger size, of all ranges, fails with kOutOfMemory
};

/// What the device was asked to do so far.
struct FaultCounts {
  int64_t n_commands = 0;
  int64_t n_growths = 0;
  int64_t n_delays = 0;
};

class FaultyDevice final : public Device {
 public:
  FaultyDevice(std::unique_ptr<Device> inner, const FaultPlan& plan);
  ~FaultyDevice() override;

  [[nodiscard]] const DeviceInfo& info() const override { return inner_->info(); }
  [[nodiscard]] uint64_t budget_bytes() const override { return inner_->budget_bytes(); }
  [[nodiscard]] uint64_t used_bytes() const override { return inner_->used_bytes(); }
  [[nodiscard]] uint64_t spare_bytes() const override { return inner_->spare_bytes(); }
  Result<std::unique_ptr<MemoryRange>> reserve(uint64_t max_bytes, std::string purpose) override;
  Queue& compute_queue() override;
  Result<std::unique_ptr<Queue>> make_queue() override;

  [[nodiscard]] FaultCounts counts() const;
  /// Another plan from now on, with counts from 0; a dead device stays dead. REQUIRES: nobody submits meanwhile.
  void arm(const FaultPlan& plan);

  struct Faults;  // plan, counts and whether the device is dead; shared with queue and ranges

 private:
  const std::shared_ptr<Faults> faults_;
  const std::unique_ptr<Device> inner_;
  const std::unique_ptr<Queue> queue_;
};

}  // namespace tessera

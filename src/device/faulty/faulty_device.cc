#include "device/faulty/faulty_device.h"

#include <atomic>
#include <chrono>
#include <fmt/core.h>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

namespace tessera {

struct FaultyDevice::Faults {
  Faults(const FaultPlan& fault_plan, std::string name)
      : plan(fault_plan), device(std::move(name)), random(fault_plan.seed) {}

  FaultPlan plan;  // constant while anything is submitted
  const std::string device;
  std::mutex random_mutex;
  std::mt19937_64 random;  // guarded by random_mutex
  std::atomic<int64_t> n_commands{0};
  std::atomic<int64_t> n_growths{0};
  std::atomic<int64_t> n_delays{0};
  std::atomic<bool> dead{false};
};

namespace {

class FaultyQueue final : public Queue {
 public:
  FaultyQueue(Queue& inner, std::shared_ptr<FaultyDevice::Faults> faults) : inner_(inner), faults_(std::move(faults)) {}
  FaultyQueue(std::unique_ptr<Queue> inner, std::shared_ptr<FaultyDevice::Faults> faults)
      : owned_(std::move(inner)), inner_(*owned_), faults_(std::move(faults)) {}

  void submit(std::shared_ptr<const CommandList> list, const LaunchSizes& sizes) override {
    if (list == nullptr) {
      return;
    }
    for (const Command& command : *list) {
      inject(command.name);
      inner_.submit(std::make_shared<const CommandList>(1, command), sizes);
    }
  }
  void submit_host(std::function<Status()> fn) override {
    inject("host call");
    inner_.submit_host(std::move(fn));
  }
  void wait(const Event& event) override { inner_.wait(event); }
  Event record() override { return inner_.record(); }
  Status synchronize() override { return inner_.synchronize(); }

 private:
  // Submits what the plan holds for the next command: a delay, or a failure, after which the command is skipped.
  void inject(const char* name) {
    const FaultPlan& plan = faults_->plan;
    const int64_t n = faults_->n_commands++;
    delay();
    if (plan.die_at_command != FaultPlan::kNever && n > plan.die_at_command) {
      // Death comes when the command's turn comes: until then other queues run.
      inner_.submit_host([faults = faults_]() -> Status {
        return faults->dead ? Status(ErrorCode::kDeviceLost, fmt::format("device {} is lost", faults->device))
                            : Status();
      });
    }
    if (n == plan.die_at_command) {
      inner_.submit_host([faults = faults_, n, name] {
        faults->dead = true;
        return Status(ErrorCode::kDeviceLost,
                      fmt::format("device {} is lost: planned at command {} ({})", faults->device, n, name));
      });
    } else if (n == plan.fail_at_command ||
               (plan.fail_from_command != FaultPlan::kNever && n >= plan.fail_from_command)) {
      inner_.submit_host([faults = faults_, n, name] {
        return Status(ErrorCode::kInternal,
                      fmt::format("device {}: planned failure of command {} ({})", faults->device, n, name));
      });
    }
  }

  void delay() {
    const FaultPlan& plan = faults_->plan;
    if (plan.delay_probability <= 0 || plan.max_delay_us <= 0) {
      return;
    }
    // Computed here rather than by a library distribution, whose numbers differ between libraries.
    std::unique_lock lock(faults_->random_mutex);
    const double chance = static_cast<double>(faults_->random() >> 11) * 0x1p-53;
    const auto us = static_cast<int64_t>(faults_->random() % (static_cast<uint64_t>(plan.max_delay_us) + 1));
    lock.unlock();
    if (chance < plan.delay_probability) {
      ++faults_->n_delays;
      inner_.submit_host([us] {
        std::this_thread::sleep_for(std::chrono::microseconds(us));
        return Status();
      });
    }
  }

  const std::unique_ptr<Queue> owned_;  // null: another's
  Queue& inner_;
  const std::shared_ptr<FaultyDevice::Faults> faults_;
};

class FaultyMemory final : public MemoryRange {
 public:
  FaultyMemory(std::unique_ptr<MemoryRange> inner, std::string purpose, std::shared_ptr<FaultyDevice::Faults> faults)
      : inner_(std::move(inner)), purpose_(std::move(purpose)), faults_(std::move(faults)) {}

  [[nodiscard]] std::byte* base() const override { return inner_->base(); }
  [[nodiscard]] uint64_t reserved_bytes() const override { return inner_->reserved_bytes(); }
  [[nodiscard]] uint64_t committed_bytes() const override { return inner_->committed_bytes(); }
  Status resize(uint64_t bytes) override {
    if (bytes > inner_->committed_bytes()) {
      const int64_t n = faults_->n_growths++;
      if (faults_->dead) {
        return {ErrorCode::kDeviceLost, fmt::format("device {} is lost: {} cannot grow", faults_->device, purpose_)};
      }
      if (n == faults_->plan.fail_growth_at) {
        return {ErrorCode::kOutOfMemory,
                fmt::format("device {}: planned failure of growth {} ({})", faults_->device, n, purpose_)};
      }
    }
    return inner_->resize(bytes);
  }
  void shrink(uint64_t bytes, uint64_t most_spare) override { inner_->shrink(bytes, most_spare); }

 private:
  const std::unique_ptr<MemoryRange> inner_;
  const std::string purpose_;
  const std::shared_ptr<FaultyDevice::Faults> faults_;
};

}  // namespace

FaultyDevice::FaultyDevice(std::unique_ptr<Device> inner, const FaultPlan& plan)
    : faults_(std::make_shared<Faults>(plan, inner->info().name)),
      inner_(std::move(inner)),
      queue_(std::make_unique<FaultyQueue>(inner_->compute_queue(), faults_)) {}

FaultyDevice::~FaultyDevice() = default;

Result<std::unique_ptr<MemoryRange>> FaultyDevice::reserve(uint64_t max_bytes, std::string purpose) {
  ASSIGN_OR_RETURN(auto range, inner_->reserve(max_bytes, purpose));
  return std::unique_ptr<MemoryRange>(std::make_unique<FaultyMemory>(std::move(range), std::move(purpose), faults_));
}

Queue& FaultyDevice::compute_queue() {
  return *queue_;
}

Result<std::unique_ptr<Queue>> FaultyDevice::make_queue() {
  if (faults_->dead) {
    return Status(ErrorCode::kDeviceLost, fmt::format("device {} is lost", faults_->device));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Queue> queue, inner_->make_queue());
  return std::unique_ptr<Queue>(std::make_unique<FaultyQueue>(std::move(queue), faults_));
}

void FaultyDevice::arm(const FaultPlan& plan) {
  faults_->plan = plan;
  faults_->random.seed(plan.seed);
  faults_->n_commands = 0;
  faults_->n_growths = 0;
  faults_->n_delays = 0;
}

FaultCounts FaultyDevice::counts() const {
  return {faults_->n_commands, faults_->n_growths, faults_->n_delays};
}

}  // namespace tessera

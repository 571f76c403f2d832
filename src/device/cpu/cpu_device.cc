#include "device/cpu/cpu_device.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "base/threads.h"
#include "device/cpu/cpu_host.h"
#include "device/cpu/cpu_memory.h"
#include "device/cpu/cpu_team.h"
#include "device/host_queue.h"

namespace tessera {
namespace {

class CpuDevice final : public Device {
 public:
  CpuDevice(DeviceInfo info, std::shared_ptr<MemoryBudget> budget, CpuList interleave_nodes,
            std::unique_ptr<HostQueue> queue, HostQueue::Options further_queues, CpuList cpus)
      : info_(std::move(info)),
        budget_(std::move(budget)),
        interleave_nodes_(std::move(interleave_nodes)),
        queue_(std::move(queue)),
        further_queues_(std::move(further_queues)),
        cpus_(std::move(cpus)) {}

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  [[nodiscard]] uint64_t budget_bytes() const override { return budget_->budget_bytes(); }
  [[nodiscard]] uint64_t used_bytes() const override { return budget_->used_bytes(); }
  [[nodiscard]] uint64_t spare_bytes() const override { return budget_->spare().bytes(); }
  Result<std::unique_ptr<MemoryRange>> reserve(uint64_t max_bytes, std::string purpose) override {
    ASSIGN_OR_RETURN(std::unique_ptr<MemoryRange> range,
                     CpuMemory::reserve(budget_, max_bytes, std::move(purpose), interleave_nodes_));
    return range;
  }
  Queue& compute_queue() override { return *queue_; }
  // One thread of its own: copies do not wait for the team, which may be shared.
  Result<std::unique_ptr<Queue>> make_queue() override {
    ASSIGN_OR_RETURN(std::unique_ptr<HostQueue> queue, HostQueue::start(further_queues_, run_on_one_thread));
    queue->submit_host([cpus = cpus_]() -> Status {
      run_on_cpus(cpus);
      return {};
    });
    return std::unique_ptr<Queue>(std::move(queue));
  }

 private:
  const DeviceInfo info_;
  const std::shared_ptr<MemoryBudget> budget_;  // shared with the ranges
  const CpuList interleave_nodes_;
  const std::unique_ptr<HostQueue> queue_;
  const HostQueue::Options further_queues_;
  const CpuList cpus_;  // of the queues' threads; empty: any
};

// Spin times by who waits: a thread may spin only if every thread that could want a core at that time has one.
struct SpinTimes {
  int team_us;   // team threads for each other
  int queue_us;  // queue threads for work and for other devices
  int wait_us;   // the engine's thread for the devices
};

SpinTimes choose_spin_times(int n_threads, int n_devices, int n_cores, int spin_us) {
  // Queue threads are team threads, except in a shared team, where only one of them is at a time.
  const int n_device_threads = n_threads >= n_devices ? n_threads : n_threads - 1 + n_devices;
  return {
      .team_us = n_threads <= n_cores ? spin_us : 0,
      .queue_us = n_device_threads <= n_cores ? spin_us : 0,
      // Short: it waits for whole batches, and woke the queue's thread on its own core if the others are busy.
      .wait_us = n_device_threads + 1 <= n_cores ? spin_us / 5 : 0,
  };
}

}  // namespace

Result<std::vector<std::unique_ptr<Device>>> make_cpu_devices(const CpuDeviceOptions& options) {
  CHECK(!options.names.empty());
  const size_t n_names = options.names.size();
  if (options.n_threads < 0 || options.n_threads > kMaxThreads) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("--threads is {}; it must be 0 (as many as can run) to {}",
                                                           options.n_threads, kMaxThreads));
  }
  if (!options.budget_bytes.empty() && options.budget_bytes.size() != n_names) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("{} memory budgets for {} CPU devices", options.budget_bytes.size(), n_names));
  }
  const CpuHost host = cpu_host();
  const CpuAffinity& affinity = options.affinity;
  const int n_cores = usable_threads(affinity);
  const int n_devices = static_cast<int>(n_names);
  const int n_threads = options.n_threads == 0 ? n_cores : options.n_threads;
  const SpinTimes spin = choose_spin_times(n_threads, n_devices, n_cores, options.spin_us);
  const bool shared = n_threads < n_devices;
  std::shared_ptr<CpuTeam> team;
  if (shared) {
    ASSIGN_OR_RETURN(team, CpuTeam::start("cpu", n_threads, spin.team_us, affinity));
  }

  std::vector<std::unique_ptr<Device>> devices;
  int first_thread = 0;
  for (int i = 0; i < n_devices; ++i) {
    const std::string& name = options.names[static_cast<size_t>(i)];
    if (!shared) {
      const int n_own = n_threads / n_devices + (i < n_threads % n_devices ? 1 : 0);
      ASSIGN_OR_RETURN(team, CpuTeam::start(name, n_own, spin.team_us, affinity, first_thread));
    }
    ASSIGN_OR_RETURN(auto queue, HostQueue::start({name, spin.queue_us, spin.wait_us},
                                                  [team](const CommandList& list, const LaunchSizes& sizes) {
                                                    team->run(list, sizes);
                                                  }));
    // The queue's thread is the team's thread 0.
    const CpuList cpus = affinity.of(first_thread);
    queue->submit_host([cpus]() -> Status {
      run_on_cpus(cpus);
      return {};
    });
    first_thread += shared ? 0 : team->n_threads();
    DeviceInfo info;
    info.name = name;
    info.description = fmt::format("{}, {} of {} threads{}{}", host.processor, team->n_threads(), host.n_threads,
                                   shared ? fmt::format(" shared by {} devices", n_devices) : "",
                                   affinity.cpus.empty() ? "" : " on CPUs " + cpu_list_text(affinity.cpus));
    info.kernel_class = options.kernel_class;
    info.n_threads = team->n_threads();
    uint64_t budget_bytes = options.budget_bytes.empty() ? 0 : options.budget_bytes[static_cast<size_t>(i)];
    if (budget_bytes == 0) {
      budget_bytes = host.available_bytes / static_cast<uint64_t>(n_devices);
    }
    auto budget = options.ledger == nullptr
                      ? std::make_shared<MemoryBudget>(name, budget_bytes)
                      : std::make_shared<MemoryBudget>(name, budget_bytes, options.ledger->of(name));
    devices.push_back(std::make_unique<CpuDevice>(std::move(info), std::move(budget), affinity.interleave_nodes,
                                                  std::move(queue),
                                                  HostQueue::Options{name + "/+", spin.queue_us, spin.wait_us}, cpus));
  }
  return devices;
}

}  // namespace tessera

#include "device/cpu/cpu_team.h"

#include <cstring>
#include <fmt/core.h>

#include "device/copy_rows.h"
#include "device/cpu/cpu_stream_copy.h"

namespace tessera {

Result<std::shared_ptr<CpuTeam>> CpuTeam::start(const std::string& name, int n_threads, int spin_us,
                                                const CpuAffinity& affinity, int first_thread) {
  CHECK(n_threads >= 1);
  std::shared_ptr<CpuTeam> team(new CpuTeam(n_threads, spin_us));
  for (int i = 1; i < n_threads; ++i) {
    ASSIGN_OR_RETURN(std::thread thread, start_thread(fmt::format("{}/{}", name, i),
                                                      [t = team.get(), i, cpus = affinity.of(first_thread + i)] {
                                                        run_on_cpus(cpus);
                                                        t->work(i);
                                                      }));
    team->threads_.push_back(std::move(thread));
  }
  return team;
}

CpuTeam::~CpuTeam() {
  closing_.store(true);
  jobs_.advance();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void CpuTeam::run(const CommandList& list, const LaunchSizes& sizes) {
  if (list.empty()) {
    return;
  }
  const std::lock_guard lock(turn_);
  list_ = &list;
  sizes_ = sizes;
  if (n_threads_ > 1) {
    jobs_.advance();
  }
  execute(0, caller_spin_);
}

void CpuTeam::work(int thread) {
  SpinBudget job_spin(spin_us_);
  SpinBudget barrier_spin(spin_us_);
  uint32_t seen = 0;
  for (;;) {
    seen = jobs_.wait_past(seen, job_spin);
    if (closing_.load()) {
      return;
    }
    execute(thread, barrier_spin);
  }
}

void CpuTeam::execute(int thread, SpinBudget& spin) {
  CpuLaunch launch{thread, n_threads_, &taken_};
  const LaunchSizes sizes = sizes_;
  const Command* command = list_->data();
  const Command* const end = command + list_->size();
  for (; command != end; ++command) {
    if (command->kernel != nullptr) {
      command->kernel(&launch, command->args.get(), sizes);
    } else {
      cpu_copy_share(command->copy, sizes, launch);
    }
    barrier(spin);
  }
}

void CpuTeam::barrier(SpinBudget& spin) {
  if (n_threads_ == 1) {
    taken_.store(0, std::memory_order_relaxed);
    return;
  }
  // barriers_ cannot advance before this thread has arrived.
  const uint32_t seen = barriers_.load();
  if (n_arrived_.fetch_add(1, std::memory_order_acq_rel) == n_threads_ - 1) {
    n_arrived_.store(0, std::memory_order_relaxed);
    taken_.store(0, std::memory_order_relaxed);
    barriers_.advance();
  } else {
    barriers_.wait_past(seen, spin);
  }
}

void run_on_one_thread(const CommandList& list, const LaunchSizes& sizes) {
  CpuLaunch launch;
  for (const Command& command : list) {
    if (command.kernel != nullptr) {
      command.kernel(&launch, command.args.get(), sizes);
    } else if (command.copy.count == RowCount::kFixed && command.copy.rows == 1) {
      cpu_stream_copy(command.copy.dst, command.copy.src, command.copy.width);
    } else {
      cpu_copy_share(command.copy, sizes, launch);
    }
  }
}

void cpu_copy_share(const CopyArgs& copy, const LaunchSizes& sizes, const CpuLaunch& launch) {
  uint64_t rows = copy_rows(copy, sizes);
  uint64_t width = copy.width;
  if (rows == 0 || width == 0) {
    return;
  }
  if (width == copy.dst_pitch && width == copy.src_pitch) {
    width *= rows;
    rows = 1;
  }
  auto* dst = static_cast<std::byte*>(copy.dst);
  const auto* src = static_cast<const std::byte*>(copy.src);
  if (rows == 1) {
    // A page: for less, a second thread is not worth the cache lines that change hands.
    const CpuShare bytes = cpu_share(launch, static_cast<int64_t>(width), 4096);
    if (bytes.begin < bytes.end) {
      std::memcpy(dst + bytes.begin, src + bytes.begin, static_cast<size_t>(bytes.end - bytes.begin));
    }
    return;
  }
  const CpuShare share = cpu_share(launch, static_cast<int64_t>(rows));
  for (auto row = static_cast<uint64_t>(share.begin); row < static_cast<uint64_t>(share.end); ++row) {
    std::memcpy(dst + row * copy.dst_pitch, src + row * copy.src_pitch, width);
  }
}

}  // namespace tessera

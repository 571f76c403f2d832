#pragma once
// The threads of one or several CPU devices: every thread runs every command of a list, each on its share, and all meet
// at a barrier after each command.
//
// The caller of run() is thread 0 of the team; the team owns the others. Threads that wait spin for spin_us and then
// sleep, so a thread that loses its core delays the others but keeps none of them busy for long; with spin_us 0 they
// sleep at once. Devices that share a team take turns: one list at a time.

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/threads.h"
#include "device/cpu/cpu_affinity.h"
#include "device/cpu/cpu_launch.h"
#include "device/device.h"

namespace tessera {

class CpuTeam {
 public:
  /// Starts n_threads - 1 threads, named `name`/1 and so on; thread i runs on affinity.of(first_thread + i). Where the
  /// caller of run(), thread 0, runs is the caller's matter. REQUIRES: n_threads >= 1.
  /// Errors: kOutOfMemory when the system grants no more threads.
  static Result<std::shared_ptr<CpuTeam>> start(const std::string& name, int n_threads, int spin_us,
                                                const CpuAffinity& affinity = {}, int first_thread = 0);
  /// REQUIRES: no run() is in progress.
  ~CpuTeam();
  CpuTeam(const CpuTeam&) = delete;
  CpuTeam& operator=(const CpuTeam&) = delete;

  [[nodiscard]] int n_threads() const { return n_threads_; }

  /// Runs all commands in order and returns when they are done. From any thread; calls run one after another.
  void run(const CommandList& list, const LaunchSizes& sizes);

 private:
  CpuTeam(int n_threads, int spin_us) : n_threads_(n_threads), spin_us_(spin_us), caller_spin_(spin_us) {}
  void work(int thread);
  void execute(int thread, SpinBudget& spin);
  void barrier(SpinBudget& spin);

  const int n_threads_;
  const int spin_us_;
  std::mutex turn_;         // held while a list runs
  SpinBudget caller_spin_;  // thread 0's at barriers, guarded by turn_
  // The list that runs. Written by run() before jobs_ advances; every thread is past its last barrier, and reads none
  // of it, before run() can be called again.
  const CommandList* list_ = nullptr;
  LaunchSizes sizes_;
  std::atomic<bool> closing_{false};
  // Each on a cache line of its own: waiting threads read one while arriving threads write the other.
  alignas(64) WaitCounter jobs_;
  alignas(64) std::atomic<int> n_arrived_{0};
  alignas(64) std::atomic<int> taken_{0};  // CpuLaunch::taken
  alignas(64) WaitCounter barriers_;
  std::vector<std::thread> threads_;
};

/// Runs all commands in order on the calling thread alone; large copies go past the caches (cpu_stream_copy.h).
void run_on_one_thread(const CommandList& list, const LaunchSizes& sizes);

/// One thread's share of a copy. Ranges do not overlap.
void cpu_copy_share(const CopyArgs& copy, const LaunchSizes& sizes, const CpuLaunch& launch);

}  // namespace tessera

#pragma once
// Threads and the one way they wait for each other: spin for a short while, then sleep in the kernel.
//
// Waking a sleeping thread takes 5 to 50 us, longer than most commands of a small model run; spinning hides it. But a
// thread that spins while another one wants its core only delays what it waits for: where there are more threads than
// cores, spin times are 0. Nor can a program know whether its threads have a core each: on a busy machine the system
// may put two of them on one, where each spins in the other's way. A SpinBudget notices and mostly sleeps instead.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"

namespace tessera {

/// Threads that this process can run at once: its processor affinity, cut by its groups' quota (cgroup.h). At least 1.
int hardware_threads();

/// Most threads that the CPU devices of one model may have: as many as the largest machines have.
inline constexpr int kMaxThreads = 1024;

/// CPUs that the calling thread may run on, ascending; empty where the system does not say.
std::vector<int> allowed_cpus();
/// Keeps the calling thread on these CPUs. A hint: where the system refuses, and for no CPUs, nothing changes.
void run_on_cpus(const std::vector<int>& cpus);

/// Starts a thread with a name for debuggers (cut to 15 bytes). Signals from outside (SIGINT, SIGTERM, ...) are blocked
/// on it: they reach the threads that expect them. Errors: kOutOfMemory when the system grants no more threads.
Result<std::thread> start_thread(const std::string& name, std::function<void()> body);

/// How long one thread spins before it sleeps, learnt from its last waits: after each spin in vain it goes straight to
/// sleep for a while, twice as often as before, up to 64 times; a spin that pays forgives all. Of one thread.
class SpinBudget {
 public:
  explicit SpinBudget(int spin_us) : spin_us_(spin_us) {}

  /// How long to spin in the next wait: the full time or 0.
  int next_us() {
    if (n_skips_ > 0) {
      --n_skips_;
      return 0;
    }
    return spin_us_;
  }
  /// Says how a spin ended.
  void spun(bool in_vain) {
    penalty_ = in_vain ? std::clamp(penalty_ * 2, 1, 64) : 0;
    n_skips_ = penalty_;
  }

 private:
  int spin_us_;
  int penalty_ = 0;
  int n_skips_ = 0;
};

/// A counter that only goes up, and on which threads wait. All methods may be called from any thread; what a thread did
/// before advance() is seen by a thread that load() or wait_past() has shown the new value.
class WaitCounter {
 public:
  static constexpr std::chrono::nanoseconds kForever = std::chrono::nanoseconds::max();

  [[nodiscard]] uint32_t load() const { return value_.load(std::memory_order_acquire); }

  /// Adds one (wrapping) and wakes every thread that waits.
  void advance();

  /// Waits until the value is not `seen`: spins as the budget says, then sleeps for up to `timeout`. Returns the value
  /// found, `seen` when time ran out.
  uint32_t wait_past(uint32_t seen, SpinBudget& budget, std::chrono::nanoseconds timeout = kForever) const;
  /// The same for a thread that has no budget: spins up to spin_us.
  uint32_t wait_past(uint32_t seen, int spin_us, std::chrono::nanoseconds timeout = kForever) const {
    SpinBudget budget(spin_us);
    return wait_past(seen, budget, timeout);
  }

 private:
  [[nodiscard]] uint32_t spin(uint32_t seen, int spin_us) const;
  [[nodiscard]] uint32_t sleep(uint32_t seen, std::chrono::nanoseconds timeout) const;

  std::atomic<uint32_t> value_{0};
  mutable std::atomic<uint32_t> n_sleepers_{0};  // advance() skips the system call while it is 0
};

}  // namespace tessera

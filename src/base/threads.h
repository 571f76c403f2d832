#pragma once
// Threads and the one way they wait for each other: spin for a short while, then sleep in the kernel.
//
// Waking a sleeping thread takes 5 to 50 us, longer than most commands of a small model run; spinning hides it. But a
// thread that spins while another one wants its core only delays what it waits for: where there are more threads than
// cores, spin times are 0.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "base/status.h"

namespace tessera {

/// Threads that this process can run at once: its processor affinity, cut by a container's CPU quota. At least 1.
int hardware_threads();

/// Starts a thread with a name for debuggers (cut to 15 bytes). Signals from outside (SIGINT, SIGTERM, ...) are blocked
/// on it: they reach the threads that expect them. Errors: kOutOfMemory when the system grants no more threads.
Result<std::thread> start_thread(const std::string& name, std::function<void()> body);

/// A counter that only goes up, and on which threads wait. All methods may be called from any thread; what a thread did
/// before advance() is seen by a thread that load() or wait_past() has shown the new value.
class WaitCounter {
 public:
  static constexpr std::chrono::nanoseconds kForever = std::chrono::nanoseconds::max();

  [[nodiscard]] uint32_t load() const { return value_.load(std::memory_order_acquire); }

  /// Adds one (wrapping) and wakes every thread that waits.
  void advance();

  /// Waits until the value is not `seen`: spins up to spin_us, then sleeps, in all no longer than spin_us + timeout.
  /// Returns the value found, `seen` when time ran out.
  uint32_t wait_past(uint32_t seen, int spin_us, std::chrono::nanoseconds timeout = kForever) const;

 private:
  std::atomic<uint32_t> value_{0};
  mutable std::atomic<uint32_t> n_sleepers_{0};  // advance() skips the system call while it is 0
};

}  // namespace tessera

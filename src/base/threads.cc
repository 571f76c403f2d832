#include "base/threads.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <csignal>
#include <ctime>
#include <linux/futex.h>
#include <new>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/cgroup.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
using CpuSet = std::array<cpu_set_t, 8>;  // 8192 CPUs, the most that Linux can be built for

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

uint32_t* futex_word(const std::atomic<uint32_t>& value) {
  static_assert(sizeof(value) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
  return const_cast<uint32_t*>(reinterpret_cast<const uint32_t*>(&value));
}

}  // namespace

int hardware_threads() {
  const auto n_cpus = static_cast<int>(allowed_cpus().size());
  const int n = n_cpus > 0 ? n_cpus : static_cast<int>(std::thread::hardware_concurrency());
  const double quota = std::round(cgroup_cpus(cgroup_folders()));
  return std::max(1, static_cast<int>(std::min(static_cast<double>(n), quota)));
}

std::vector<int> allowed_cpus() {
  CpuSet set{};
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, set.data()) == 0) {
    for (size_t cpu = 0; cpu < 8 * sizeof set; ++cpu) {
      if (CPU_ISSET_S(cpu, sizeof set, set.data())) {
        cpus.push_back(static_cast<int>(cpu));
      }
    }
  }
  return cpus;
}

void run_on_cpus(const std::vector<int>& cpus) {
  CpuSet set{};
  for (const int cpu : cpus) {
    CPU_SET_S(static_cast<size_t>(cpu), sizeof set, set.data());
  }
  if (!cpus.empty()) {
    sched_setaffinity(0, sizeof set, set.data());
  }
}

Result<std::thread> start_thread(const std::string& name, std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // A fault of the thread's own must reach the handler that reports it, and a profiler its thread.
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGPROF}) {
    sigdelset(&all, own);
  }
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  std::string reason;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error& error) {
    reason = error.what();
  } catch (const std::bad_alloc&) {  // not past the mask, which is the caller's
    reason = "no memory left";
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!thread.joinable()) {
    return Status(ErrorCode::kOutOfMemory, "cannot start thread " + name + ": " + reason);
  }
  pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
  return thread;
}

void WaitCounter::advance() {
  // Sequentially consistent, as is the sleeper's count: either this thread sees the sleeper, or the kernel sees the new
  // value when the sleeper asks to sleep.
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (n_sleepers_.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, futex_word(value_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
}

uint32_t WaitCounter::wait_past(uint32_t seen, SpinBudget& budget, std::chrono::nanoseconds timeout) const {
  if (const uint32_t value = load(); value != seen) {
    return value;
  }
  if (const int spin_us = budget.next_us(); spin_us > 0) {
    const uint32_t value = spin(seen, spin_us);
    budget.spun(value == seen);
    if (value != seen) {
      return value;
    }
  }
  return sleep(seen, timeout);
}

uint32_t WaitCounter::spin(uint32_t seen, int spin_us) const {
  const auto end = Clock::now() + std::chrono::microseconds(spin_us);
  do {
    for (int i = 0; i < 32; ++i) {
      if (const uint32_t value = load(); value != seen) {
        return value;
      }
      relax();
    }
  } while (Clock::now() < end);
  return seen;
}

uint32_t WaitCounter::sleep(uint32_t seen, std::chrono::nanoseconds timeout) const {
  const auto start = Clock::now();
  n_sleepers_.fetch_add(1, std::memory_order_seq_cst);
  uint32_t value = load();
  while (value == seen) {
    timespec left{};
    if (timeout != kForever) {
      const auto ns = (timeout - (Clock::now() - start)).count();
      if (ns <= 0) {
        break;
      }
      left.tv_sec = ns / 1'000'000'000;
      left.tv_nsec = ns % 1'000'000'000;
    }
    syscall(SYS_futex, futex_word(value_), FUTEX_WAIT_PRIVATE, seen, timeout == kForever ? nullptr : &left, nullptr, 0);
    value = load();
  }
  n_sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return value;
}

}  // namespace tessera

#pragma once
// What a CPU kernel is handed: which thread of the team it runs on. Private to device/cpu and kernels/cpu.
//
// Every thread of the team calls the kernel with the same args (SPMD); the team meets at a barrier after each command,
// so a kernel only splits its own work and never synchronises. Threads split rows, heads or tokens, never the axis a
// sum runs over: results must not depend on the number of threads, nor on which thread computed what.

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace tessera {

struct CpuLaunch {
  int thread = 0;  // this thread, 0 .. n_threads - 1
  int n_threads = 1;
  std::atomic<int>* taken = nullptr;  // pieces of work taken from a common rest, 0 when a command begins; null: no rest
};

/// This thread's contiguous share of n items handed out in multiples of `grain`.
struct CpuShare {
  int64_t begin = 0;
  int64_t end = 0;
};

[[nodiscard]] inline CpuShare cpu_share(const CpuLaunch& launch, int64_t n, int64_t grain = 1) {
  const int64_t n_grains = (n + grain - 1) / grain;
  const int64_t begin = n_grains * launch.thread / launch.n_threads * grain;
  const int64_t end = n_grains * (launch.thread + 1) / launch.n_threads * grain;
  return {std::min(begin, n), std::min(end, n)};
}

}  // namespace tessera

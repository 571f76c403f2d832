#pragma once
// Times of one thread that a busy machine disturbs little.

#include <algorithm>
#include <ctime>

namespace tessera::bench {

/// CPU time of the calling thread.
inline double thread_seconds() {
  timespec t = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Seconds of the fastest of n_runs calls of run() by the calling thread, in its CPU time: a busy machine disturbs that
/// little.
template <class Run>
double fastest(int n_runs, const Run& run) {
  double best = 1e30;
  for (int i = 0; i < n_runs; ++i) {
    const double start = thread_seconds();
    run();
    best = std::min(best, thread_seconds() - start);
  }
  return best;
}

}  // namespace tessera::bench

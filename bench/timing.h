#pragma once
// Times of one thread that a busy machine disturbs little, and what many samples say together.

#include <algorithm>
#include <ctime>
#include <vector>

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

/// What samples say together.
struct Spread {
  double low, median, high;
};

/// low and high leave out the share `tail` of the samples at either end: 0 for the least and the most.
/// REQUIRES: at least one sample.
inline Spread spread_of(std::vector<double> samples, double tail = 0) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    return samples[std::min(samples.size() - 1, static_cast<size_t>(share * static_cast<double>(samples.size())))];
  };
  return {at(tail), at(0.5), at(1 - tail)};
}

}  // namespace tessera::bench

#pragma once
// What copying between devices is measured against: plain copies by two threads, in the same run.

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace tessera {

/// Two threads, each of which copies from a buffer of its own into another; all of them are touched beforehand.
class CopyRate {
 public:
  /// n_bytes: copied in all by one measure(), half by each thread. Buffers are a quarter of GiB at most, and are gone
  /// through again. Errors: kOutOfMemory.
  static Result<CopyRate> create(uint64_t n_bytes);

  /// Bytes per second, each byte counted once. Errors: kOutOfMemory when the system grants no threads.
  Result<double> measure();

 private:
  struct Pair {
    std::vector<char> from;
    std::vector<char> to;
  };

  Pair pairs_[2];
  uint64_t n_rounds_ = 1;
};

}  // namespace tessera

#include "copy_rate.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "base/threads.h"

namespace tessera {
namespace {

constexpr uint64_t kLargestBuffer = 256 << 20;
constexpr uint64_t kSmallestBuffer = 1 << 20;

}  // namespace

Result<CopyRate> CopyRate::create(uint64_t n_bytes) {
  CopyRate rate;
  const uint64_t half = std::max(n_bytes / 2, kSmallestBuffer);
  rate.n_rounds_ = (half + kLargestBuffer - 1) / kLargestBuffer;
  const uint64_t size = half / rate.n_rounds_;
  try {
    for (Pair& pair : rate.pairs_) {
      pair.from.assign(size, 1);
      pair.to.assign(size, 2);
    }
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::kOutOfMemory, "no memory is left for buffers to measure copies with");
  }
  return rate;
}

Result<double> CopyRate::measure() {
  using Clock = std::chrono::steady_clock;
  std::barrier<> ready(2);
  std::barrier<> done(2);
  const auto copy = [this](Pair& pair) {
    for (uint64_t i = 0; i < n_rounds_; ++i) {
      std::memcpy(pair.to.data(), pair.from.data(), pair.from.size());
    }
  };
  ASSIGN_OR_RETURN(std::thread other, start_thread("copy", [&] {
                     ready.arrive_and_wait();
                     copy(pairs_[1]);
                     done.arrive_and_wait();
                   }));
  ready.arrive_and_wait();
  const Clock::time_point start = Clock::now();
  copy(pairs_[0]);
  done.arrive_and_wait();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  other.join();
  return static_cast<double>(2 * n_rounds_ * pairs_[0].from.size()) / seconds;
}

}  // namespace tessera

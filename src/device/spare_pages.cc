#include "device/spare_pages.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/proc.h"

namespace tessera {

void SparePages::keep(std::byte* begin, uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    pages_.emplace(begin, bytes);
    bytes_ += bytes;
  } catch (const std::bad_alloc&) {
    madvise(begin, bytes, MADV_DONTNEED);
  }
}

uint64_t SparePages::take(std::byte* begin) {
  const std::lock_guard lock(mutex_);
  const auto found = pages_.find(begin);
  if (found == pages_.end()) {
    return 0;
  }
  const uint64_t bytes = found->second;
  bytes_ -= bytes;
  pages_.erase(found);
  return bytes;
}

// Under the lock: a range that takes its pages back meanwhile may find them gone, but never while they go.
void SparePages::drop(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (uint64_t left = round_up(bytes, page_bytes()); left > 0 && !pages_.empty();) {
    const auto last = std::prev(pages_.end());
    auto& [begin, kept] = *last;
    const uint64_t n = std::min(left, kept);
    madvise(begin + (kept - n), n, MADV_DONTNEED);
    left -= n;
    kept -= n;
    bytes_ -= n;
    if (kept == 0) {
      pages_.erase(last);
    }
  }
}

uint64_t SparePages::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace tessera

#include "tests/support/allocations.h"

#include <atomic>
#include <cstdlib>
#include <malloc.h>
#include <new>

namespace tessera {
namespace {

std::atomic<size_t> live{0};
std::atomic<size_t> peak{0};
thread_local int64_t n_good_left = 0;  // before the next one that fails
thread_local int64_t n_failures_left = 0;
thread_local int64_t n_failed = 0;
std::atomic<int64_t> n_good_anywhere{-1};  // before the one that fails; negative: none does

bool must_fail() {
  if (n_good_anywhere.load() >= 0 && n_good_anywhere.fetch_sub(1) == 0) {
    return true;
  }
  if (n_failures_left == 0 || n_good_left-- > 0) {
    return false;
  }
  n_good_left = 1;
  --n_failures_left;
  ++n_failed;
  return true;
}

void* take(size_t size) {
  return must_fail() ? nullptr : std::malloc(size != 0 ? size : 1);
}

void* counted(void* p) {
  if (p == nullptr) {
    throw std::bad_alloc();
  }
  const size_t now = live.fetch_add(malloc_usable_size(p)) + malloc_usable_size(p);
  size_t seen = peak.load();
  while (now > seen && !peak.compare_exchange_weak(seen, now)) {
  }
  return p;
}

void release(void* p) {
  if (p != nullptr) {
    live.fetch_sub(malloc_usable_size(p));
    std::free(p);
  }
}

}  // namespace

size_t live_bytes() {
  return live.load();
}
size_t peak_bytes() {
  return peak.load();
}
void reset_peak() {
  peak.store(live.load());
}

void fail_allocations(int64_t n_good, int64_t n_failures) {
  n_good_left = n_good;
  n_failures_left = n_failures;
  n_failed = 0;
}
int64_t fail_one_anywhere(int64_t n_good) {
  return n_good_anywhere.exchange(n_good);
}
int64_t end_failing_allocations() {
  n_failures_left = 0;
  return n_failed;
}

}  // namespace tessera

// Asio takes its memory so.
extern "C" void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return tessera::must_fail() ? nullptr : memalign(alignment, size);
}

// All forms in use, also those that the standard library would build from others: a sanitizer's runtime brings its own
// of each, and memory must come from and go back to one of the two.
void* operator new(size_t size) {
  return tessera::counted(tessera::take(size));
}
void* operator new[](size_t size) {
  return operator new(size);
}
void* operator new(size_t size, std::align_val_t alignment) {
  const auto a = static_cast<size_t>(alignment);
  return tessera::counted(aligned_alloc(a, (size + a - 1) / a * a));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  void* p = tessera::take(size);
  return p == nullptr ? nullptr : tessera::counted(p);
}
void* operator new[](size_t size, const std::nothrow_t& tag) noexcept {
  return operator new(size, tag);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
  tessera::release(p);
}
void operator delete[](void* p, const std::nothrow_t&) noexcept {
  tessera::release(p);
}
void operator delete(void* p) noexcept {
  tessera::release(p);
}
void operator delete[](void* p) noexcept {
  tessera::release(p);
}
void operator delete[](void* p, size_t) noexcept {
  tessera::release(p);
}
void operator delete(void* p, size_t) noexcept {
  tessera::release(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  tessera::release(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  tessera::release(p);
}

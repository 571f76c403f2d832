#include "tests/support/allocations.h"

#include <atomic>
#include <cstdlib>
#include <malloc.h>
#include <new>

namespace tessera {
namespace {

std::atomic<size_t> live{0};
std::atomic<size_t> peak{0};

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

}  // namespace tessera

// All forms in use, also those that the standard library would build from others: a sanitizer's runtime brings its own of
// each, and memory must come from and go back to one of the two.
void* operator new(size_t size) {
  return tessera::counted(std::malloc(size != 0 ? size : 1));
}
void* operator new[](size_t size) {
  return operator new(size);
}
void* operator new(size_t size, std::align_val_t alignment) {
  const auto a = static_cast<size_t>(alignment);
  return tessera::counted(std::aligned_alloc(a, (size + a - 1) / a * a));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  void* p = std::malloc(size != 0 ? size : 1);
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

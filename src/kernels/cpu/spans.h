#pragma once
// How elementwise kernels share rows among threads. Private to kernels/cpu.

#include <algorithm>
#include <cstdint>

#include "device/cpu/cpu_launch.h"

namespace tessera {

/// Columns that one thread takes at once; a multiple of every activation block.
inline constexpr int64_t kSpanColumns = 256;

/// Calls body(row, begin, end) for this thread's columns [begin, end) of n_rows rows of `width`; begin is a multiple of
/// kSpanColumns, so a single long row is shared as well.
template <class Body>
inline void for_each_span(void* launch, int64_t n_rows, int64_t width, Body body) {
  const int64_t chunks = (width + kSpanColumns - 1) / kSpanColumns;
  const CpuShare share = cpu_share(*static_cast<const CpuLaunch*>(launch), n_rows * chunks);
  for (int64_t at = share.begin; at < share.end;) {
    const int64_t row = at / chunks;
    const int64_t first = at % chunks;
    const int64_t last = std::min(chunks, first + share.end - at);
    body(row, first * kSpanColumns, std::min(width, last * kSpanColumns));
    at += last - first;
  }
}

}  // namespace tessera

#pragma once
// The size of a KV page (docs/design.md, memory), fixed for every cache type, class and device: rooms that keep the
// book of pages and kernels that read them must agree on it.

#include <cstdint>

namespace tessera {

/// Consecutive positions of one sequence in one page.
inline constexpr int64_t kPageTokens = 32;

}  // namespace tessera

#pragma once
// What prompts have in common.

#include <algorithm>
#include <cstdint>
#include <span>

namespace tessera {

/// How many tokens both begin with.
inline int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace tessera

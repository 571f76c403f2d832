#pragma once
// Arithmetic on untrusted sizes: every function says whether it overflowed instead of wrapping.

#include <cstdint>
#include <optional>

namespace tessera {

/// a + b, or nothing on overflow.
[[nodiscard]] inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) {
    return std::nullopt;
  }
  return r;
}

/// a * b, or nothing on overflow.
[[nodiscard]] inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) {
    return std::nullopt;
  }
  return r;
}

/// a rounded up to a multiple of alignment, or nothing on overflow. REQUIRES: alignment is a power of two.
[[nodiscard]] inline std::optional<uint64_t> checked_align_up(uint64_t a, uint64_t alignment) {
  const auto sum = checked_add(a, alignment - 1);
  if (!sum) {
    return std::nullopt;
  }
  return *sum & ~(alignment - 1);
}

/// For trusted sizes: a rounded up to a multiple of b. REQUIRES: b > 0 and no overflow.
[[nodiscard]] constexpr uint64_t round_up(uint64_t a, uint64_t b) {
  return (a + b - 1) / b * b;
}

/// For trusted sizes: a / b rounded up. REQUIRES: b > 0.
[[nodiscard]] constexpr uint64_t div_up(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

}  // namespace tessera

#pragma once
// matmul_vec.h in plain C++: the meaning of each operation. Include matmul_vec.h instead.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/vec.h"

namespace tessera::portable {

/// Tokens that share weights unpacked in registers, and groups of rows that are then read side by side.
inline constexpr int kDirectTokens = 4;
inline constexpr int kDirectGroups = 1;
/// Tokens that share weights unpacked into a slab.
inline constexpr int kSlabTokens = 8;

/// The offset that quants of fewer than 8 bits get in a slab, where they have one.
inline constexpr int kSlabOffset = 128;
/// Rows and tokens of a float product whose sums are in registers.
inline constexpr int64_t kFloatRows = 4;
inline constexpr int kFloatTileTokens = 2;

/// A line: 16 rows x 4 columns of unsigned bytes.
struct Bytes {
  uint64_t v[8];
};

inline Bytes load_bytes(const std::byte* p) {
  Bytes r;
  std::memcpy(r.v, p, sizeof(r.v));
  return r;
}
inline void store_bytes(std::byte* p, Bytes a) {
  std::memcpy(p, a.v, sizeof(a.v));
}

inline constexpr uint64_t kEachByte = 0x0101010101010101U;

inline Bytes low_nibbles(Bytes a) {
  for (uint64_t& x : a.v) {
    x &= 0x0F * kEachByte;
  }
  return a;
}
inline Bytes high_nibbles(Bytes a) {
  for (uint64_t& x : a.v) {
    x = x >> 4 & 0x0F * kEachByte;
  }
  return a;
}
/// a | (b << kShift & kMask) in each byte; a negative shift goes right. The mask lies within what stays in the byte.
template <int kShift, int kMask>
inline Bytes join_bits(Bytes a, Bytes b) {
  for (int i = 0; i < 8; ++i) {
    const uint64_t moved = kShift >= 0 ? b.v[i] << (kShift & 63) : b.v[i] >> (-kShift & 63);
    a.v[i] |= moved & kMask * kEachByte;
  }
  return a;
}
/// Adds n to each byte. No byte overflows.
inline Bytes add_bytes(Bytes a, int n) {
  for (uint64_t& x : a.v) {
    x += static_cast<uint64_t>(n) * kEachByte;
  }
  return a;
}

/// Sixteen row sums of up to 8 lines times int8 activations, exact. kBits bounds the bytes: < 2^kBits.
/// kTokens: how many such sums the caller has in flight.
template <int kBits, int kTokens>
struct LineSum {
  static constexpr bool kRemovesOffset = false;  // true: add() takes weights minus 128, so start() gets 0
  int32_t v[16];
  void start(int32_t first) {
    for (int32_t& x : v) {
      x = first;
    }
  }
  /// Adds sum over i < 4 of w[row][i] * x[i]. kIndex: lines added before since start().
  template <int kIndex>
  void add(Bytes w, const int8_t* x) {
    unsigned char bytes[64];
    std::memcpy(bytes, w.v, sizeof(bytes));
    for (int row = 0; row < 16; ++row) {
      for (int i = 0; i < 4; ++i) {
        v[row] += bytes[4 * row + i] * x[i];
      }
    }
  }
  /// The sums, converted to float.
  F32x16 finish() const {
    return each([&](int i) { return static_cast<float>(v[i]); });
  }
};

inline F32x16 load_u8(const std::byte* p) {
  return each([&](int i) { return static_cast<float>(static_cast<uint8_t>(p[i])); });
}

}  // namespace tessera::portable

#pragma once
// matmul_vec.h in plain C++: the meaning of each operation. Include matmul_vec.h instead.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/vec.h"

namespace tessera::portable {

/// Tokens that share weights unpacked in registers, and groups of rows that are then read side by side.
inline constexpr int kDirectTokens = 2;
inline constexpr int kDirectGroups = 1;
/// The same where one group is read at a time; at least kDirectTokens.
inline constexpr int kLoneTokens = 2;
/// Groups of rows that are unpacked into slabs together, and groups and tokens of a tile on them.
inline constexpr int kSlabGroups = 1;
inline constexpr int kTileGroups = 1;
inline constexpr int kSlabTokens = 4;

/// The offset that quants of fewer than 8 bits get in a slab, where they have one.
inline constexpr int kSlabOffset = 128;
/// Whether slabs hold weights of 8 bits as 16: lines of 2 columns, products with activations of 16 bits.
inline constexpr bool kWideSlabs = false;
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

inline uint8_t byte_at(const Bytes& a, int i) {
  return static_cast<uint8_t>(a.v[i / 8] >> 8 * (i % 8));
}
template <class Function>
inline Bytes each_byte(Function f) {
  Bytes r = {};
  for (int i = 0; i < 64; ++i) {
    r.v[i / 8] |= static_cast<uint64_t>(f(i)) << 8 * (i % 8);
  }
  return r;
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

/// The kMask bits of each byte shifted right by kShift (left where negative). The mask lies within what stays there.
template <int kShift, int kMask>
inline Bytes field(Bytes a) {
  return join_bits<-kShift, kMask>({}, a);
}
/// table[i] for each byte i < 16.
inline Bytes lookup(Bytes a, const ByteTable& table) {
  return each_byte([&](int i) { return table[byte_at(a, i)]; });
}
/// Sums and differences of bytes, modulo 256.
inline Bytes operator+(Bytes a, Bytes b) {
  return each_byte([&](int i) { return static_cast<uint8_t>(byte_at(a, i) + byte_at(b, i)); });
}
inline Bytes operator-(Bytes a, Bytes b) {
  return each_byte([&](int i) { return static_cast<uint8_t>(byte_at(a, i) - byte_at(b, i)); });
}
/// Products of bytes, modulo 256.
inline Bytes operator*(Bytes a, Bytes b) {
  return each_byte([&](int i) { return static_cast<uint8_t>(byte_at(a, i) * byte_at(b, i)); });
}
/// The same where no product passes 255 and b went through spread_factors().
inline Bytes times_small(Bytes a, Bytes b) {
  return a * b;
}
/// b as times_small() wants it, from bytes that are equal in pairs. The upper nibbles are dropped.
inline Bytes spread_factors(Bytes b) {
  return low_nibbles(b);
}
inline Bytes splat_byte(int n) {
  return each_byte([&](int) { return static_cast<uint8_t>(n); });
}
/// The byte p[r] four times in each row r.
inline Bytes row_bytes(const std::byte* p) {
  return each_byte([&](int i) { return static_cast<uint8_t>(p[i / 4]); });
}

inline I32x16 operator&(I32x16 a, I32x16 b) {
  return each_int([&](int i) { return a.v[i] & b.v[i]; });
}
inline I32x16 operator|(I32x16 a, I32x16 b) {
  return each_int([&](int i) { return a.v[i] | b.v[i]; });
}
inline I32x16 load_ints(const std::byte* p) {
  I32x16 r;
  std::memcpy(r.v, p, sizeof(r.v));
  return r;
}
/// table[a] in each lane.
inline I32x16 gather(const uint32_t* table, I32x16 a) {
  return each_int([&](int i) { return table[a.v[i]]; });
}
/// Lane r's four bytes as those of row r.
inline Bytes as_bytes(I32x16 a) {
  Bytes r;
  std::memcpy(r.v, a.v, sizeof(r.v));
  return r;
}
/// 2 * kMiddle - a, modulo 256, in byte i < 4 of each row where bit kBit + i of the row's signs is set; a elsewhere.
/// kBit: a multiple of 4.
template <int kBit, int kMiddle>
inline Bytes mirror(Bytes a, Bytes signs) {
  return each_byte([&](int i) {
    const int sign = byte_at(signs, i / 4 * 4 + kBit / 8) >> (kBit % 8 + i % 4) & 1;
    return static_cast<uint8_t>(sign != 0 ? 2 * kMiddle - byte_at(a, i) : byte_at(a, i));
  });
}
inline F32x16 to_floats(I32x16 a) {
  return each([&](int i) { return static_cast<float>(static_cast<int32_t>(a.v[i])); });
}
/// Takes the first base-3 digit off each byte, a fraction of 256ths.
inline Bytes take_digits(Bytes& rest) {
  const Bytes digits = each_byte([&](int i) { return static_cast<uint8_t>(byte_at(rest, i) * 3 >> 8); });
  rest = rest * splat_byte(3);
  return digits;
}

/// Four consecutive activations.
struct Word {
  int8_t v[4];
};
inline Word load_word(const int8_t* x) {
  return {{x[0], x[1], x[2], x[3]}};
}

/// Sixteen row sums of up to 8 lines times int8 activations, exact. kBits bounds the bytes: < 2^kBits.
/// kTokens: how many such sums the caller has in flight.
template <int kBits, int kTokens>
struct LineSum {
  static constexpr bool kRemovesOffset = false;  // true: add() takes weights minus 128, with nothing left to undo
  int32_t v[16];
  void start(int32_t first) {
    for (int32_t& x : v) {
      x = first;
    }
  }
  /// Adds sum over i < 4 of w[row][i] * x[i]. kIndex: lines added before since start().
  template <int kIndex>
  void add(Bytes w, const Word& x) {
    unsigned char bytes[64];
    std::memcpy(bytes, w.v, sizeof(bytes));
    for (int row = 0; row < 16; ++row) {
      for (int i = 0; i < 4; ++i) {
        v[row] += bytes[4 * row + i] * x.v[i];
      }
    }
  }
  /// The sums' bits as floats.
  F32x16 finish() const {
    return each([&](int i) { return std::bit_cast<float>(v[i]); });
  }
};

inline F32x16 load_u8(const std::byte* p) {
  return each([&](int i) { return static_cast<float>(static_cast<uint8_t>(p[i])); });
}
/// Sixteen floats of 4 exponent and 3 fraction bits (below 0x80), as f16 sees them: 2^-8 of UE4M3's values.
inline F32x16 load_small_floats(const std::byte* p) {
  return each([&](int i) { return f16_to_f32(static_cast<uint16_t>(static_cast<unsigned>(p[i]) << 7)); });
}

}  // namespace tessera::portable

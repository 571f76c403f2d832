#pragma once
// matmul_vec.h for AVX-512 with VNNI. Include matmul_vec.h instead; meanings are stated in matmul_vec_portable.h.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/vec.h"

namespace tessera::avx512 {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Smaller tiles, which give the same bits: the others take minutes to compile with checks.
inline constexpr int kDirectTokens = 2;
inline constexpr int kLoneTokens = 4;
inline constexpr int kSlabTokens = 3;
#else
inline constexpr int kDirectTokens = 4;
inline constexpr int kLoneTokens = 8;  // 8 integer and 8 float sums of the 32 registers
inline constexpr int kSlabTokens = 6;  // 12 integer and 12 float sums of the 32 registers
#endif
inline constexpr int kDirectGroups = 4;
inline constexpr int kSlabGroups = 2;
inline constexpr int kTileGroups = 2;    // so that an activation, once loaded, serves two products
inline constexpr int kSlabOffset = 128;  // activations carry their sum times 128 ready-made
inline constexpr bool kWideSlabs = false;
inline constexpr int64_t kFloatRows = 8;
inline constexpr int kFloatTileTokens = 2;

struct Bytes {
  __m512i v;
};

inline Bytes load_bytes(const std::byte* p) {
  return {_mm512_loadu_si512(p)};
}
inline void store_bytes(std::byte* p, Bytes a) {
  _mm512_storeu_si512(p, a.v);
}
inline Bytes low_nibbles(Bytes a) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))};
}
inline Bytes high_nibbles(Bytes a) {
  return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(15))};
}
template <int kShift, int kMask>
inline Bytes join_bits(Bytes a, Bytes b) {
  __m512i moved = b.v;
  if constexpr (kShift > 0) {
    moved = _mm512_slli_epi16(b.v, kShift);
  } else if constexpr (kShift < 0) {
    moved = _mm512_srli_epi16(b.v, -kShift);
  }
  // 0xF8: first | (second & third)
  return {_mm512_ternarylogic_epi32(a.v, moved, _mm512_set1_epi8(static_cast<char>(kMask)), 0xF8)};
}
inline Bytes add_bytes(Bytes a, int n) {
  return {_mm512_add_epi8(a.v, _mm512_set1_epi8(static_cast<char>(n)))};
}

template <int kShift, int kMask>
inline Bytes field(Bytes a) {
  __m512i moved = a.v;
  if constexpr (kShift > 0) {
    moved = _mm512_srli_epi16(a.v, kShift);
  } else if constexpr (kShift < 0) {
    moved = _mm512_slli_epi16(a.v, -kShift);
  }
  return {_mm512_and_si512(moved, _mm512_set1_epi8(static_cast<char>(kMask)))};
}
inline Bytes lookup(Bytes a, const ByteTable& table) {
  const __m512i t = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table.data())));
  return {_mm512_shuffle_epi8(t, a.v)};
}
inline Bytes operator+(Bytes a, Bytes b) {
  return {_mm512_add_epi8(a.v, b.v)};
}
inline Bytes operator-(Bytes a, Bytes b) {
  return {_mm512_sub_epi8(a.v, b.v)};
}
/// Sixteen-bit products: the low byte of the whole word's, and the upper byte of that of the upper byte alone.
inline Bytes operator*(Bytes a, Bytes b) {
  const __m512i upper = _mm512_set1_epi16(static_cast<int16_t>(0xFF00));
  const __m512i even = _mm512_mullo_epi16(a.v, b.v);
  const __m512i odd = _mm512_mullo_epi16(_mm512_and_si512(a.v, upper), b.v);
  // 0xCA: bitwise (first ? second : third)
  return {_mm512_ternarylogic_epi32(upper, odd, even, 0xCA)};
}
inline Bytes times_small(Bytes a, Bytes b) {
  return {_mm512_mullo_epi16(a.v, b.v)};
}
inline Bytes spread_factors(Bytes b) {
  return {_mm512_and_si512(b.v, _mm512_set1_epi16(15))};
}
inline Bytes splat_byte(int n) {
  return {_mm512_set1_epi8(static_cast<char>(n))};
}
inline Bytes row_bytes(const std::byte* p) {
  const __m512i b = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i four =
      _mm512_setr_epi32(0x00000000, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606, 0x07070707,
                        0x08080808, 0x09090909, 0x0A0A0A0A, 0x0B0B0B0B, 0x0C0C0C0C, 0x0D0D0D0D, 0x0E0E0E0E, 0x0F0F0F0F);
  return {_mm512_shuffle_epi8(b, four)};
}

inline I32x16 operator&(I32x16 a, I32x16 b) {
  return {_mm512_and_si512(a.v, b.v)};
}
inline I32x16 operator|(I32x16 a, I32x16 b) {
  return {_mm512_or_si512(a.v, b.v)};
}
inline I32x16 load_ints(const std::byte* p) {
  return {_mm512_loadu_si512(p)};
}
inline I32x16 gather(const uint32_t* table, I32x16 a) {
  return {_mm512_i32gather_epi32(a.v, table, 4)};
}
inline Bytes as_bytes(I32x16 a) {
  return {a.v};
}
template <int kBit, int kMiddle>
inline Bytes mirror(Bytes a, Bytes signs) {
  constexpr int kByte = kBit / 8 * 0x01010101;
  const __m512i spread = _mm512_shuffle_epi8(
      signs.v,
      _mm512_broadcast_i32x4(_mm_setr_epi32(kByte, kByte + 0x04040404, kByte + 0x08080808, kByte + 0x0C0C0C0C)));
  const __mmask64 negative =
      _mm512_test_epi8_mask(spread, _mm512_set1_epi32(static_cast<int32_t>(kBit % 8 == 0 ? 0x08040201U : 0x80402010U)));
  return {_mm512_mask_sub_epi8(a.v, negative, _mm512_set1_epi8(static_cast<char>(2 * kMiddle)), a.v)};
}
inline F32x16 to_floats(I32x16 a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
inline Bytes take_digits(Bytes& rest) {
  const __m512i lower = _mm512_set1_epi16(0x00FF);
  const __m512i three = _mm512_set1_epi16(3);
  const __m512i even = _mm512_mullo_epi16(_mm512_and_si512(rest.v, lower), three);
  const __m512i odd = _mm512_mullo_epi16(_mm512_srli_epi16(rest.v, 8), three);
  // 0xCA: bitwise (first ? second : third)
  rest.v = _mm512_ternarylogic_epi32(lower, even, _mm512_slli_epi16(odd, 8), 0xCA);
  return {_mm512_ternarylogic_epi32(lower, _mm512_srli_epi16(even, 8), odd, 0xCA)};
}

struct Word {
  __m512i v;
};
inline Word load_word(const int8_t* x) {
  int32_t word = 0;
  std::memcpy(&word, x, sizeof(word));
  return {_mm512_set1_epi32(word)};
}

template <int kBits, int kTokens>
struct LineSum {
  // With few sums in flight, two chains hide the latency of vpdpbusd.
  static constexpr bool kTwoChains = kTokens <= 2;
  static constexpr bool kRemovesOffset = false;
  __m512i even, odd;
  void start(int32_t first) {
    even = _mm512_set1_epi32(first);
    odd = _mm512_setzero_si512();
  }
  template <int kIndex>
  void add(Bytes w, const Word& x) {
    __m512i& sum = kTwoChains && kIndex % 2 == 1 ? odd : even;
    sum = _mm512_dpbusd_epi32(sum, w.v, x.v);
  }
  F32x16 finish() const { return {_mm512_castsi512_ps(kTwoChains ? _mm512_add_epi32(even, odd) : even)}; }
};

inline F32x16 load_u8(const std::byte* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline F32x16 load_small_floats(const std::byte* p) {
  const __m256i h = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm512_cvtph_ps(_mm256_slli_epi16(h, 7))};
}

}  // namespace tessera::avx512

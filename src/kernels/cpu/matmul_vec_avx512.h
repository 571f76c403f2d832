#pragma once
// matmul_vec.h for AVX-512 with VNNI. Include matmul_vec.h instead; meanings are stated in matmul_vec_portable.h.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/vec.h"

namespace tessera::avx512 {

inline constexpr int kDirectTokens = 4;
inline constexpr int kDirectGroups = 4;
inline constexpr int kSlabTokens = 12;   // 12 integer and 12 float sums of the 32 registers
inline constexpr int kSlabOffset = 128;  // activations carry their sum times 128 ready-made
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

inline __m512i splat_word(const int8_t* x) {
  int32_t word = 0;
  std::memcpy(&word, x, sizeof(word));
  return _mm512_set1_epi32(word);
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
  void add(Bytes w, const int8_t* x) {
    __m512i& sum = kTwoChains && kIndex % 2 == 1 ? odd : even;
    sum = _mm512_dpbusd_epi32(sum, w.v, splat_word(x));
  }
  F32x16 finish() const { return {_mm512_cvtepi32_ps(kTwoChains ? _mm512_add_epi32(even, odd) : even)}; }
};

inline F32x16 load_u8(const std::byte* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}

}  // namespace tessera::avx512

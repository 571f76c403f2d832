#pragma once
// matmul_vec.h for AVX2. Include matmul_vec.h instead; meanings are stated in matmul_vec_portable.h.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#include "kernels/cpu/vec.h"

namespace tessera::avx2 {

inline constexpr int kDirectTokens = 3;
inline constexpr int kDirectGroups = 2;
inline constexpr int kSlabTokens = 3;   // 3 x (2 integer + 2 float sums) of the 16 registers
inline constexpr int kSlabOffset = 16;  // keeps sums of pairs within 16 bits
inline constexpr int64_t kFloatRows = 4;
inline constexpr int kFloatTileTokens = 1;

struct Bytes {
  __m256i lo, hi;  // rows 0 - 7, 8 - 15
};

inline Bytes load_bytes(const std::byte* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline void store_bytes(std::byte* p, Bytes a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), a.hi);
}
inline Bytes low_nibbles(Bytes a) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
}
inline Bytes high_nibbles(Bytes a) {
  return low_nibbles({_mm256_srli_epi16(a.lo, 4), _mm256_srli_epi16(a.hi, 4)});
}
template <int kShift, int kMask>
inline Bytes join_bits(Bytes a, Bytes b) {
  const auto half = [](__m256i x, __m256i y) {
    const __m256i moved = kShift >= 0 ? _mm256_slli_epi16(y, kShift) : _mm256_srli_epi16(y, -kShift);
    return _mm256_or_si256(x, _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(kMask))));
  };
  return {half(a.lo, b.lo), half(a.hi, b.hi)};
}
inline Bytes add_bytes(Bytes a, int n) {
  const __m256i add = _mm256_set1_epi8(static_cast<char>(n));
  return {_mm256_add_epi8(a.lo, add), _mm256_add_epi8(a.hi, add)};
}

inline __m256i splat_word(const int8_t* x) {
  int32_t word = 0;
  std::memcpy(&word, x, sizeof(word));
  return _mm256_set1_epi32(word);
}

/// Pairs of products are summed in 16 bits for as many lines as cannot overflow (a pair is at most
/// 2 * (2^kBits - 1) * 127), then widened to 32.
template <int kBits, int kTokens>
struct LineSum {
  static constexpr int kNarrowLines = kBits == 4 ? 8 : kBits == 5 ? 4 : kBits == 6 ? 2 : 1;
  // Unsigned bytes of 8 bits would overflow a pair: such weights are taken as signed, so that their offset of 128 is
  // gone and start() must not correct for it.
  static constexpr bool kRemovesOffset = kBits == 8;
  __m256i lo, hi;                // 32-bit sums
  __m256i narrow_lo, narrow_hi;  // 16-bit sums of pairs

  void start(int32_t first) { lo = hi = _mm256_set1_epi32(first); }

  template <int kIndex>
  void add(Bytes w, const int8_t* x) {
    const __m256i word = splat_word(x);
    if constexpr (kBits == 8) {
      lo = _mm256_add_epi32(lo, widen(signed_pairs(w.lo, word)));
      hi = _mm256_add_epi32(hi, widen(signed_pairs(w.hi, word)));
      return;
    }
    const __m256i pairs_lo = _mm256_maddubs_epi16(w.lo, word);
    const __m256i pairs_hi = _mm256_maddubs_epi16(w.hi, word);
    if constexpr (kIndex % kNarrowLines == 0) {
      narrow_lo = pairs_lo;
      narrow_hi = pairs_hi;
    } else {
      narrow_lo = _mm256_add_epi16(narrow_lo, pairs_lo);
      narrow_hi = _mm256_add_epi16(narrow_hi, pairs_hi);
    }
    if constexpr (kIndex % kNarrowLines == kNarrowLines - 1) {
      lo = _mm256_add_epi32(lo, widen(narrow_lo));
      hi = _mm256_add_epi32(hi, widen(narrow_hi));
    }
  }

  F32x16 finish() const { return {_mm256_cvtepi32_ps(lo), _mm256_cvtepi32_ps(hi)}; }

 private:
  static __m256i widen(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }
  /// (w - 128) * x: the weight's sign is moved to the activation.
  static __m256i signed_pairs(__m256i w, __m256i x) {
    const __m256i value = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
    return _mm256_maddubs_epi16(_mm256_abs_epi8(value), _mm256_sign_epi8(x, value));
  }
};

inline F32x16 load_u8(const std::byte* p) {
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(b)), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(b, 8)))};
}

}  // namespace tessera::avx2

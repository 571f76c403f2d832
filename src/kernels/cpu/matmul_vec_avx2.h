#pragma once
// matmul_vec.h for AVX2 and AVX-VNNI. Include matmul_vec.h instead; meanings are stated in matmul_vec_portable.h.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#include "kernels/cpu/vec.h"

namespace tessera::TESSERA_ISA {

inline constexpr int kDirectTokens = 3;
inline constexpr int kDirectGroups = 2;
inline constexpr int kLoneTokens = 3;
inline constexpr int kTileGroups = 1;
#if defined(__AVXVNNI__)
inline constexpr int kSlabGroups = 1;
inline constexpr bool kWideSlabs = false;
inline constexpr int kSlabTokens = 3;    // 3 x (2 integer + 2 float sums) of the 16 registers
inline constexpr int kSlabOffset = 128;  // activations carry their sum times 128 ready-made
#else
inline constexpr int kSlabGroups = 2;  // share activations that were widened
inline constexpr bool kWideSlabs = true;
inline constexpr int kSlabTokens = 3;
inline constexpr int kSlabOffset = 16;  // keeps sums of pairs within 16 bits
#endif
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

template <int kShift, int kMask>
inline Bytes field(Bytes a) {
  const auto half = [](__m256i x) {
    const __m256i moved = kShift >= 0 ? _mm256_srli_epi16(x, kShift) : _mm256_slli_epi16(x, -kShift);
    return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(kMask)));
  };
  return {half(a.lo), half(a.hi)};
}
inline Bytes lookup(Bytes a, const ByteTable& table) {
  const __m256i t = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table.data())));
  return {_mm256_shuffle_epi8(t, a.lo), _mm256_shuffle_epi8(t, a.hi)};
}
inline Bytes operator+(Bytes a, Bytes b) {
  return {_mm256_add_epi8(a.lo, b.lo), _mm256_add_epi8(a.hi, b.hi)};
}
inline Bytes operator-(Bytes a, Bytes b) {
  return {_mm256_sub_epi8(a.lo, b.lo), _mm256_sub_epi8(a.hi, b.hi)};
}
/// Sixteen-bit products: the low byte of the whole word's, and the upper byte of that of the upper byte alone.
inline Bytes operator*(Bytes a, Bytes b) {
  const __m256i upper = _mm256_set1_epi16(static_cast<int16_t>(0xFF00));
  const auto half = [&](__m256i x, __m256i y) {
    const __m256i odd = _mm256_mullo_epi16(_mm256_and_si256(x, upper), y);
    return _mm256_or_si256(_mm256_andnot_si256(upper, _mm256_mullo_epi16(x, y)), odd);
  };
  return {half(a.lo, b.lo), half(a.hi, b.hi)};
}
inline Bytes times_small(Bytes a, Bytes b) {
  return {_mm256_mullo_epi16(a.lo, b.lo), _mm256_mullo_epi16(a.hi, b.hi)};
}
inline Bytes spread_factors(Bytes b) {
  const __m256i mask = _mm256_set1_epi16(15);
  return {_mm256_and_si256(b.lo, mask), _mm256_and_si256(b.hi, mask)};
}
inline Bytes splat_byte(int n) {
  return {_mm256_set1_epi8(static_cast<char>(n)), _mm256_set1_epi8(static_cast<char>(n))};
}
inline Bytes row_bytes(const std::byte* p) {
  const __m256i b = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i first = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3,  //
                                         4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
  return {_mm256_shuffle_epi8(b, first), _mm256_shuffle_epi8(b, _mm256_add_epi8(first, _mm256_set1_epi8(8)))};
}

inline I32x16 operator&(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
inline I32x16 operator|(I32x16 a, I32x16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
inline I32x16 load_ints(const std::byte* p) {
  const Bytes b = load_bytes(p);
  return {b.lo, b.hi};
}
inline I32x16 gather(const uint32_t* table, I32x16 a) {
  const auto* base = reinterpret_cast<const int*>(table);
  return {_mm256_i32gather_epi32(base, a.lo, 4), _mm256_i32gather_epi32(base, a.hi, 4)};
}
inline Bytes as_bytes(I32x16 a) {
  return {a.lo, a.hi};
}
template <int kBit, int kMiddle>
inline Bytes mirror(Bytes a, Bytes signs) {
  constexpr int kByte = kBit / 8 * 0x01010101;
  const __m256i from =
      _mm256_broadcastsi128_si256(_mm_setr_epi32(kByte, kByte + 0x04040404, kByte + 0x08080808, kByte + 0x0C0C0C0C));
  const __m256i bit = _mm256_set1_epi32(static_cast<int32_t>(kBit % 8 == 0 ? 0x08040201U : 0x80402010U));
  const auto half = [&](__m256i x, __m256i s) {
    const __m256i negative = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(s, from), bit), bit);
    // -x is ~x + 1
    const __m256i add = _mm256_and_si256(negative, _mm256_set1_epi8(static_cast<char>(2 * kMiddle + 1)));
    return _mm256_add_epi8(_mm256_xor_si256(x, negative), add);
  };
  return {half(a.lo, signs.lo), half(a.hi, signs.hi)};
}
inline F32x16 to_floats(I32x16 a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
inline Bytes take_digits(Bytes& rest) {
  const __m256i lower = _mm256_set1_epi16(0x00FF);
  const auto half = [&](__m256i& x) {
    const __m256i three = _mm256_set1_epi16(3);
    const __m256i even = _mm256_mullo_epi16(_mm256_and_si256(x, lower), three);
    const __m256i odd = _mm256_mullo_epi16(_mm256_srli_epi16(x, 8), three);
    x = _mm256_or_si256(_mm256_and_si256(even, lower), _mm256_slli_epi16(odd, 8));
    return _mm256_or_si256(_mm256_srli_epi16(even, 8), _mm256_andnot_si256(lower, odd));
  };
  return {half(rest.lo), half(rest.hi)};
}

struct Word {
  __m256i v;
};
inline Word load_word(const int8_t* x) {
  int32_t word = 0;
  std::memcpy(&word, x, sizeof(word));
  return {_mm256_set1_epi32(word)};
}

#if defined(__AVXVNNI__)
template <int kBits, int kTokens>
struct LineSum {
  static constexpr bool kRemovesOffset = false;
  __m256i lo, hi;

  void start(int32_t first) { lo = hi = _mm256_set1_epi32(first); }
  template <int kIndex>
  void add(Bytes w, const Word& x) {
    lo = _mm256_dpbusd_avx_epi32(lo, w.lo, x.v);
    hi = _mm256_dpbusd_avx_epi32(hi, w.hi, x.v);
  }
  F32x16 finish() const { return {_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)}; }
};
#else
/// Columns 2 kHalf and 2 kHalf + 1 of a line as 16 bits, minus offset.
template <int kHalf>
inline Bytes widen_columns(Bytes a, int offset) {
  constexpr int kFirst = kHalf == 0 ? 0x80018000 - 0x100000000 : 0x80038002 - 0x100000000;
  const __m256i from = _mm256_broadcastsi128_si256(
      _mm_setr_epi32(kFirst, kFirst + 0x00040004, kFirst + 0x00080008, kFirst + 0x000C000C));
  const __m256i less = _mm256_set1_epi16(static_cast<int16_t>(offset));
  return {_mm256_sub_epi16(_mm256_shuffle_epi8(a.lo, from), less),
          _mm256_sub_epi16(_mm256_shuffle_epi8(a.hi, from), less)};
}
/// wide: [32] i16 of q [32].
inline void widen_block(const int8_t* q, std::byte* wide) {
  const auto* at = reinterpret_cast<const __m128i*>(q);
  store_bytes(wide, {_mm256_cvtepi8_epi16(_mm_loadu_si128(at)), _mm256_cvtepi8_epi16(_mm_loadu_si128(at + 1))});
}

/// Pairs of products are summed in 16 bits for as many lines as cannot overflow (a pair is at most
/// 2 * (2^kBits - 1) * 127), then widened to 32.
template <int kBits, int kTokens>
struct LineSum {
  static constexpr int kNarrowLines = kBits <= 4 ? 8 : kBits == 5 ? 4 : kBits == 6 ? 2 : 1;
  // 16 bits: signed weights times activations of 16 bits. Unsigned bytes of 8 bits would overflow a pair: such weights
  // are taken as signed, so that their offset of 128 is gone and start() must not correct for it.
  static constexpr bool kRemovesOffset = kBits >= 8;
  __m256i lo, hi;                // 32-bit sums
  __m256i narrow_lo, narrow_hi;  // 16-bit sums of pairs

  void start(int32_t first) { lo = hi = _mm256_set1_epi32(first); }

  template <int kIndex>
  void add(Bytes w, const Word& x) {
    if constexpr (kBits == 16) {
      add_to(lo, _mm256_madd_epi16(w.lo, x.v));
      add_to(hi, _mm256_madd_epi16(w.hi, x.v));
      return;
    }
    if constexpr (kBits == 8) {
      lo = _mm256_add_epi32(lo, widen(signed_pairs(w.lo, x.v)));
      hi = _mm256_add_epi32(hi, widen(signed_pairs(w.hi, x.v)));
      return;
    }
    const __m256i pairs_lo = _mm256_maddubs_epi16(w.lo, x.v);
    const __m256i pairs_hi = _mm256_maddubs_epi16(w.hi, x.v);
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

  F32x16 finish() const { return {_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)}; }

 private:
  /// Keeps the compiler from adding terms to each other first, which needs more registers than there are.
  static void in_order(__m256i& sum) { asm("" : "+x"(sum)); }
  static void add_to(__m256i& sum, __m256i terms) {
    sum = _mm256_add_epi32(sum, terms);
    in_order(sum);
  }
  static __m256i widen(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }
  /// (w - 128) * x: the weight's sign is moved to the activation.
  static __m256i signed_pairs(__m256i w, __m256i x) {
    const __m256i value = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
    return _mm256_maddubs_epi16(_mm256_abs_epi8(value), _mm256_sign_epi8(x, value));
  }
};

#endif

inline F32x16 load_u8(const std::byte* p) {
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(b)), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(b, 8)))};
}
inline F32x16 load_small_floats(const std::byte* p) {
  const __m256i h = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i moved = _mm256_slli_epi16(h, 7);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(moved)), _mm256_cvtph_ps(_mm256_extracti128_si256(moved, 1))};
}

}  // namespace tessera::TESSERA_ISA

#pragma once
// vec.h for AVX2 with FMA and F16C, and for AVX-VNNI: two registers per vector. Include vec.h instead; meanings are in
// vec_portable.h.

#include <cstdint>
#include <cstring>
#include <immintrin.h>

namespace tessera::TESSERA_ISA {

/// Running vectors that a loop keeps in registers and some operands.
inline constexpr int kAccumulators = 4;

struct F32x16 {
  __m256 lo, hi;  // lanes 0 - 7, 8 - 15
};
struct I32x16 {
  __m256i lo, hi;
};

/// All ones in the first n of lanes 0 - 7.
inline __m256i mask_n(int64_t n) {
  const int limit = n < 0 ? 0 : n > 8 ? 8 : static_cast<int>(n);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(limit), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline F32x16 splat(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
inline F32x16 zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
inline F32x16 load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline F32x16 load_n(const float* p, int64_t n) {
  return {_mm256_maskload_ps(p, mask_n(n)), _mm256_maskload_ps(p + 8, mask_n(n - 8))};
}
inline void store(float* p, F32x16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline void store_n(float* p, F32x16 a, int64_t n) {
  _mm256_maskstore_ps(p, mask_n(n), a.lo);
  _mm256_maskstore_ps(p + 8, mask_n(n - 8), a.hi);
}

inline F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline F32x16 abs(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline F32x16 copysign(F32x16 a, F32x16 b) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_or_ps(_mm256_andnot_ps(sign, a.lo), _mm256_and_ps(sign, b.lo)),
          _mm256_or_ps(_mm256_andnot_ps(sign, a.hi), _mm256_and_ps(sign, b.hi))};
}
inline F32x16 select_range(F32x16 a, F32x16 b, int64_t begin, int64_t end) {
  const auto half = [&](__m256 x, __m256 y, int64_t first) {
    const __m256i in = _mm256_andnot_si256(mask_n(begin - first), mask_n(end - first));
    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(in));
  };
  return {half(a.lo, b.lo, 0), half(a.hi, b.hi, 8)};
}

inline void deinterleave(F32x16 a, F32x16 b, F32x16& first, F32x16& second) {
  // Shuffling works within 128-bit halves; 0xD8 puts the middle quarters in order.
  const auto in_order = [](__m256 x) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xD8)); };
  first = {in_order(_mm256_shuffle_ps(a.lo, a.hi, 0x88)), in_order(_mm256_shuffle_ps(b.lo, b.hi, 0x88))};
  second = {in_order(_mm256_shuffle_ps(a.lo, a.hi, 0xDD)), in_order(_mm256_shuffle_ps(b.lo, b.hi, 0xDD))};
}
inline void interleave(F32x16 first, F32x16 second, F32x16& a, F32x16& b) {
  const auto half = [](__m256 x, __m256 y) {
    const __m256 low = _mm256_unpacklo_ps(x, y);
    const __m256 high = _mm256_unpackhi_ps(x, y);
    return F32x16{_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
  };
  a = half(first.lo, second.lo);
  b = half(first.hi, second.hi);
}

inline I32x16 bits(F32x16 a) {
  return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}
inline F32x16 as_float(I32x16 a) {
  return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}
/// In two factors, because 2^n itself may lie beyond the normal numbers; only the second product can round.
inline F32x16 times_power_of_2(F32x16 a, F32x16 n) {
  const auto half = [](__m256 x, __m256 power) {
    const auto power_of_2 = [](__m256i e) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
    };
    const __m256i whole = _mm256_cvtps_epi32(power);
    const __m256i first = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(x, power_of_2(first)), power_of_2(_mm256_sub_epi32(whole, first)));
  };
  return {half(a.lo, n.lo), half(a.hi, n.hi)};
}
inline I32x16 splat_int(int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
inline I32x16 operator+(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
inline I32x16 operator-(I32x16 a, I32x16 b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
template <int kBits>
inline I32x16 shift_left(I32x16 a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
template <int kBits>
inline I32x16 shift_right(I32x16 a) {
  return {_mm256_srai_epi32(a.lo, kBits), _mm256_srai_epi32(a.hi, kBits)};
}
inline void store_low_bytes(int8_t* p, I32x16 a) {
  const __m256i low = _mm256_set1_epi32(0xFF);  // without the upper bytes, packing saturates nothing
  const __m256i words = _mm256_packus_epi32(_mm256_and_si256(a.lo, low), _mm256_and_si256(a.hi, low));
  const __m256i order = _mm256_permute4x64_epi64(words, 0xD8);  // packing works within 128-bit halves
  const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(order), _mm256_extracti128_si256(order, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
inline int32_t sum_int(I32x16 a) {
  const __m256i eight = _mm256_add_epi32(a.lo, a.hi);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1)));
}

inline float sum(F32x16 a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float max_lane(F32x16 a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
/// Sixteen sums at once, eight per half: each level adds the upper to the lower half of two vectors and packs them.
inline F32x16 sum_each(const F32x16 (&a)[16]) {
  const auto level8 = [&](int i) { return _mm256_add_ps(a[i].lo, a[i].hi); };
  const auto level4 = [](__m256 x, __m256 y) {
    return _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
  };
  const auto level2 = [](__m256 x, __m256 y) {
    return _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xEE));
  };
  const auto level1 = [](__m256 x, __m256 y) {
    return _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x88), _mm256_shuffle_ps(x, y, 0xDD));
  };
  // Half h of column(c) is the sum of four lanes of a[i + 4 h + c].
  const auto half = [&](int i) {
    const auto column = [&](int c) { return level4(level8(i + c), level8(i + 4 + c)); };
    return level1(level2(column(0), column(1)), level2(column(2), column(3)));
  };
  return {half(0), half(8)};
}

inline F32x16 load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline F32x16 load_bf16(const uint16_t* p) {
  const auto half = [](const uint16_t* h) {
    const __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(h)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
  };
  return {half(p), half(p + 8)};
}
inline F32x16 load_i8(const int8_t* p) {
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(b, 8)))};
}
inline F32x16 nibbles_minus_8(__m128i nibbles) {
  const auto half = [](__m128i b) {
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_cvtepu8_epi32(b), _mm256_set1_epi32(8)));
  };
  return {half(nibbles), half(_mm_srli_si128(nibbles, 8))};
}
inline F32x16 load_low_nibbles(const uint8_t* p) {
  return nibbles_minus_8(_mm_and_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), _mm_set1_epi8(15)));
}
inline F32x16 load_high_nibbles(const uint8_t* p) {
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return nibbles_minus_8(_mm_and_si128(_mm_srli_epi16(b, 4), _mm_set1_epi8(15)));
}
inline void store_f16(uint16_t* p, F32x16 a) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, kNearest));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, kNearest));
}
inline float f16_value(uint16_t h) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

}  // namespace tessera::TESSERA_ISA

#pragma once
// vec.h for AVX-512. Include vec.h instead; meanings are stated in vec_portable.h.

#include <cstdint>

#include "kernels/cpu/avx512.h"

namespace tessera::avx512 {

/// Running vectors that a loop keeps in registers and some operands.
inline constexpr int kAccumulators = 16;

struct F32x16 {
  __m512 v;
};
struct I32x16 {
  __m512i v;
};

inline __mmask16 mask_n(int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xFFFFU : n <= 0 ? 0U : (1U << n) - 1U);
}

inline F32x16 splat(float x) {
  return {_mm512_set1_ps(x)};
}
inline F32x16 zero() {
  return {_mm512_setzero_ps()};
}
inline F32x16 load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
inline F32x16 load_n(const float* p, int64_t n) {
  return {_mm512_maskz_loadu_ps(mask_n(n), p)};
}
inline void store(float* p, F32x16 a) {
  _mm512_storeu_ps(p, a.v);
}
inline void store_n(float* p, F32x16 a, int64_t n) {
  _mm512_mask_storeu_ps(p, mask_n(n), a.v);
}

inline F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm512_div_ps(a.v, b.v)};
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return {_mm512_max_ps(a.v, b.v)};
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return {_mm512_min_ps(a.v, b.v)};
}
inline F32x16 abs(F32x16 a) {
  return {_mm512_abs_ps(a.v)};
}
inline F32x16 copysign(F32x16 a, F32x16 b) {
  const __m512i sign = _mm512_set1_epi32(INT32_MIN);
  // 0xD8: bitwise (sign ? b : a)
  return {
      _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(a.v), _mm512_castps_si512(b.v), sign, 0xD8))};
}
inline F32x16 select_range(F32x16 a, F32x16 b, int64_t begin, int64_t end) {
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(mask_n(end) & ~mask_n(begin)), b.v, a.v)};
}
inline void deinterleave(F32x16 a, F32x16 b, F32x16& first, F32x16& second) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  first = {_mm512_permutex2var_ps(a.v, even, b.v)};
  second = {_mm512_permutex2var_ps(a.v, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b.v)};
}
inline void interleave(F32x16 first, F32x16 second, F32x16& a, F32x16& b) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  a = {_mm512_permutex2var_ps(first.v, low, second.v)};
  b = {_mm512_permutex2var_ps(first.v, _mm512_add_epi32(low, _mm512_set1_epi32(8)), second.v)};
}

inline I32x16 bits(F32x16 a) {
  return {_mm512_castps_si512(a.v)};
}
inline F32x16 as_float(I32x16 a) {
  return {_mm512_castsi512_ps(a.v)};
}
inline F32x16 times_power_of_2(F32x16 a, F32x16 n) {
  return {_mm512_scalef_ps(a.v, n.v)};
}
inline I32x16 splat_int(int32_t x) {
  return {_mm512_set1_epi32(x)};
}
inline I32x16 operator+(I32x16 a, I32x16 b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
inline I32x16 operator-(I32x16 a, I32x16 b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
template <int kBits>
inline I32x16 shift_left(I32x16 a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
template <int kBits>
inline I32x16 shift_right(I32x16 a) {
  return {_mm512_srai_epi32(a.v, kBits)};
}
inline void store_low_bytes(int8_t* p, I32x16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}
inline int32_t sum_int(I32x16 a) {
  return _mm512_reduce_add_epi32(a.v);
}

inline float sum(F32x16 a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float max_lane(F32x16 a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
/// Sixteen sums at once: each level adds the upper to the lower half of two vectors and packs the two results.
inline F32x16 sum_each(const F32x16 (&a)[16]) {
  const auto level8 = [](__m512 x, __m512 y) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xEE));
  };
  const auto level4 = [](__m512 x, __m512 y) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xDD));
  };
  const auto level2 = [](__m512 x, __m512 y) {
    return _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xEE));
  };
  const auto level1 = [](__m512 x, __m512 y) {
    return _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x88), _mm512_shuffle_ps(x, y, 0xDD));
  };
  // Quarter q of column[c] ends as the sum of a[4 q + c].
  __m512 column[4];
  for (int c = 0; c < 4; ++c) {
    column[c] = level4(level8(a[c].v, a[4 + c].v), level8(a[8 + c].v, a[12 + c].v));
  }
  return {level1(level2(column[0], column[1]), level2(column[2], column[3]))};
}

inline F32x16 load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline F32x16 load_bf16(const uint16_t* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}
inline F32x16 load_i8(const int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline F32x16 load_low_nibbles(const uint8_t* p) {
  const __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_and_si512(b, _mm512_set1_epi32(15)), _mm512_set1_epi32(8)))};
}
inline F32x16 load_high_nibbles(const uint8_t* p) {
  const __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_srli_epi32(b, 4), _mm512_set1_epi32(8)))};
}
inline void store_f16(uint16_t* p, F32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline float f16_value(uint16_t h) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

}  // namespace tessera::avx512

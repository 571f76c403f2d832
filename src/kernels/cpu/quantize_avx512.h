#pragma once
// Four blocks at once for quantize_block.h, with AVX-512: horizontal steps serve all four. Equal bits.

#include <cfloat>
#include <cstdint>

#include "kernels/cpu/avx512.h"
#include "kernels/ops/quantize.h"

namespace tessera::avx512 {

/// Rounds 64 values and packs them to bytes in order.
inline __m512i quantize_64(const float* x, __m512 inverse0, __m512 inverse1) {
  const auto round = [&](int64_t at, __m512 inverse) {
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + at), inverse));
  };
  const __m512i words0 = _mm512_packs_epi32(round(0, inverse0), round(16, inverse0));
  const __m512i words1 = _mm512_packs_epi32(round(32, inverse1), round(48, inverse1));
  // Packing works within 128-bit lanes: dword 4 l + v of the result holds columns 16 v + 4 l ...
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                                  _mm512_packs_epi16(words0, words1));
}

/// In each 128-bit lane, four copies of the sum of its 16 bytes.
inline __m512i sum_lanes_of_bytes(__m512i q) {
  const __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), q);
  const __m512i pairs = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_CDAB));
  return _mm512_add_epi32(pairs, _mm512_shuffle_epi32(pairs, _MM_PERM_BADC));
}

/// Quantises blocks 0 - 3 of x. Returns false, with nothing written, when a value is not finite.
inline bool quantize_four_blocks(const float* x, int8_t* q, Q8Scale* scales) {
  __m512i max[4];  // of each block, as integers: for magnitudes that is the same order, with NaN the largest
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    max[i] = _mm512_max_epi32(_mm512_and_si512(_mm512_loadu_si512(x + 32 * i), magnitude),
                              _mm512_and_si512(_mm512_loadu_si512(x + 32 * i + 16), magnitude));
  }
  const auto pair = [](__m512i a, __m512i b) {
    return _mm512_max_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  };
  const __m512i max01 = pair(max[0], max[1]);
  const __m512i max23 = pair(max[2], max[3]);
  __m512i all = _mm512_max_epi32(_mm512_unpacklo_epi64(max01, max23), _mm512_unpackhi_epi64(max01, max23));
  all = _mm512_max_epi32(all, _mm512_shuffle_i32x4(all, all, 0x4E));
  all = _mm512_max_epi32(all, _mm512_shuffle_i32x4(all, all, 0xB1));
  const __m128i max_bits = _mm512_castsi512_si128(all);  // [4] one per block
  if (_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpgt_epi32(max_bits, _mm_set1_epi32(0x7F7FFFFF)))) != 0) {
    return false;
  }
  const __m128 raw_d = _mm_div_ps(_mm_castsi128_ps(max_bits), _mm_set1_ps(127.0F));
  const __mmask8 present = _mm_cmp_ps_mask(raw_d, _mm_set1_ps(FLT_MIN), _CMP_GE_OQ);
  const __m128 inverse = _mm_maskz_div_ps(present, _mm_set1_ps(1.0F), raw_d);
  const auto inverse_of = [&](int block) {
    return _mm512_permutexvar_ps(_mm512_set1_epi32(block), _mm512_castps128_ps512(inverse));
  };
  const __m512i q01 = quantize_64(x, inverse_of(0), inverse_of(1));
  const __m512i q23 = quantize_64(x + 64, inverse_of(2), inverse_of(3));
  _mm512_storeu_si512(q, q01);
  _mm512_storeu_si512(q + 64, q23);

  // Lane i of what follows belongs to block i.
  const __m512i sums01 = sum_lanes_of_bytes(q01);
  const __m512i sums23 = sum_lanes_of_bytes(q23);
  const __m512i first = _mm512_shuffle_i32x4(sums01, sums23, 0x88);
  const __m512i second = _mm512_shuffle_i32x4(sums01, sums23, 0xDD);
  const __m512i total = _mm512_add_epi32(first, second);
  const __m512 d = _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                                         _mm512_castps128_ps512(_mm_maskz_mov_ps(present, raw_d)));
  const auto times_d = [&](__m512i sum) { return _mm512_mul_ps(d, _mm512_cvtepi32_ps(sum)); };
  const auto start = [](__m512i sum) {
    return _mm512_sub_epi32(_mm512_set1_epi32(kSumStart), _mm512_slli_epi32(sum, 7));
  };
  // Fields 0 - 3, then 4 and 5, of each block; then in order.
  const __m512 floats = _mm512_mask_mov_ps(_mm512_mask_mov_ps(d, 0x2222, times_d(total)), 0x4444, times_d(first));
  const __m512i four = _mm512_mask_mov_epi32(_mm512_castps_si512(floats), 0x8888, start(total));
  const __m512i two = _mm512_mask_mov_epi32(start(first), 0xAAAA, start(second));
  const __m512i head = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 4, 5, 6, 7, 20, 21, 8, 9, 10, 11);
  const __m512i tail = _mm512_setr_epi32(24, 25, 12, 13, 14, 15, 28, 29, 0, 0, 0, 0, 0, 0, 0, 0);
  _mm512_storeu_si512(scales, _mm512_permutex2var_epi32(four, head, two));
  _mm512_mask_storeu_epi32(reinterpret_cast<int32_t*>(scales) + 16, 0x00FF, _mm512_permutex2var_epi32(four, tail, two));
  return true;
}

}  // namespace tessera::avx512

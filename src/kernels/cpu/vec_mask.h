#pragma once
// A yes or no per lane, for kernel bodies whose lanes part ways (see vec.h): less() answers no where either is NaN,
// select() takes a in lanes that say yes, else b.

#include "kernels/cpu/vec.h"

namespace tessera::TESSERA_ISA {

#if defined(__AVX512F__)

struct Mask16 {
  __mmask16 v;
};
inline Mask16 less(F32x16 a, F32x16 b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
inline Mask16 operator&(Mask16 a, Mask16 b) {
  return {static_cast<__mmask16>(a.v & b.v)};
}
inline F32x16 select(const Mask16& m, F32x16 a, F32x16 b) {
  return {_mm512_mask_blend_ps(m.v, b.v, a.v)};
}

#elif defined(__AVX2__)

struct Mask16 {
  __m256 lo, hi;  // all ones or all zeros
};
inline Mask16 less(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
inline Mask16 operator&(const Mask16& a, const Mask16& b) {
  return {_mm256_and_ps(a.lo, b.lo), _mm256_and_ps(a.hi, b.hi)};
}
inline F32x16 select(const Mask16& m, F32x16 a, F32x16 b) {
  return {_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}

#else

struct Mask16 {
  bool v[16];
};
inline Mask16 less(F32x16 a, F32x16 b) {
  Mask16 m;
  for (int i = 0; i < 16; ++i) {
    m.v[i] = a.v[i] < b.v[i];
  }
  return m;
}
inline Mask16 operator&(Mask16 a, const Mask16& b) {
  for (int i = 0; i < 16; ++i) {
    a.v[i] = a.v[i] && b.v[i];
  }
  return a;
}
inline F32x16 select(const Mask16& m, F32x16 a, F32x16 b) {
  return each([&](int i) { return m.v[i] ? a.v[i] : b.v[i]; });
}

#endif

}  // namespace tessera::TESSERA_ISA

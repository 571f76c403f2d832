#pragma once
// Elementary functions on sixteen lanes, with equal bits on every instruction set (see vec.h).
//
// All rest on e^r = 1 + r + r^2 q(r) for |r| <= ln 2 / 2, whose coefficients scripts/fit_exp.py derives (relative error
// 3.2e-9), and on x = n ln 2 + r. Errors against the exact value, over all finite x: exp at most 1.2 ulp where the
// result is normal; tanh 4 ulp; silu and gelu_tanh 4 ulp for |x| < 80 and below 1e-33 absolute elsewhere
// (vec_math_test).

#include "kernels/cpu/vec.h"
#include "kernels/ops/glu.h"

namespace tessera::TESSERA_ISA {

/// x = n ln 2 + r; `tail` = e^r - 1, `n` = n as an integer.
struct ReducedExp {
  F32x16 tail;
  I32x16 n;
};

/// REQUIRES: |x| < 2^20. NaN gives a NaN tail.
inline ReducedExp reduce_exp(F32x16 x) {
  const F32x16 magic = splat(0x1.8p23F);                       // adding it rounds to an integer, found in the low bits
  const F32x16 shifted = fma(x, splat(0x1.715476p0F), magic);  // 1 / ln 2
  const F32x16 n = shifted - magic;
  F32x16 r = fma(n, splat(-0x1.62e43p-1F), x);  // ln 2 in two parts
  r = fma(n, splat(0x1.05c61p-29F), r);
  F32x16 q = splat(0x1.6ac74ep-10F);
  q = fma(q, r, splat(0x1.123dep-7F));
  q = fma(q, r, splat(0x1.555858p-5F));
  q = fma(q, r, splat(0x1.55548cp-3F));
  q = fma(q, r, splat(0x1.fffffcp-2F));
  return {fma(r * r, q, r), bits(shifted) - bits(magic)};
}

/// 2^n. REQUIRES: -126 <= n <= 127.
inline F32x16 power_of_2(I32x16 n) {
  return as_float(shift_left<23>(n + splat_int(127)));
}

/// e^x: 0 below -104, infinity above 88.73; NaN stays NaN. exp(0) is exactly 1.
inline F32x16 exp(F32x16 x) {
  const ReducedExp e = reduce_exp(min(splat(89.0F), max(splat(-104.0F), x)));
  // Two factors, because 2^n itself may lie beyond the normal numbers.
  const I32x16 half = shift_right<1>(e.n);
  return (splat(1.0F) + e.tail) * power_of_2(half) * power_of_2(e.n - half);
}

inline F32x16 tanh(F32x16 x) {
  // (e^2|x| - 1) / (e^2|x| + 1); from 2|x| = 20 on it is 1.
  const ReducedExp e = reduce_exp(min(splat(20.0F), abs(x) + abs(x)));
  const F32x16 scale = power_of_2(e.n);
  const F32x16 expm1 = fma(scale, e.tail, scale - splat(1.0F));
  return copysign(expm1 / (expm1 + splat(2.0F)), x);
}

/// x / (1 + e^-x)
inline F32x16 silu(F32x16 x) {
  return x / (splat(1.0F) + exp(zero() - x));
}

/// 0.5 x (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
inline F32x16 gelu_tanh(F32x16 x) {
  const F32x16 inner = fma(x * x * x, splat(0.044715F), x);
  return x / (splat(1.0F) + exp(inner * splat(-0x1.988454p0F)));  // -2 sqrt(2 / pi)
}

inline F32x16 activate(Activation activation, F32x16 x) {
  return activation == Activation::kSilu ? silu(x) : gelu_tanh(x);
}

/// cap * tanh(x / cap)
inline F32x16 softcap(F32x16 x, float cap) {
  return splat(cap) * tanh(x / splat(cap));
}

}  // namespace tessera::TESSERA_ISA

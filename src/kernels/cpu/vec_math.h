#pragma once
// Elementary functions on sixteen lanes, with equal bits on every instruction set (see vec.h).
//
// All rest on e^r = 1 + r + r^2 q(r) for |r| <= ln 2 / 2, whose coefficients scripts/fit_exp.py derives (relative error
// 3.2e-9), and on x = n ln 2 + r. Errors against the exact value (vec_math_test): exp 1.2 ulp, in units of 2^-149 where
// the result is not normal; tanh 4 ulp; silu 4 ulp for |x| < 80, an underflow to -0 below -89; gelu_tanh 6 ulp for
// x >= -1, below that also the rounding of u, |2 u| ulp.

#include "kernels/cpu/vec.h"
#include "kernels/ops/glu.h"

namespace tessera::TESSERA_ISA {

/// x = n ln 2 + r; `tail` = e^r - 1.
struct ReducedExp {
  F32x16 tail;
  F32x16 n;
};

/// REQUIRES: |x| < 2^20. NaN gives NaN.
inline ReducedExp reduce_exp(F32x16 x) {
  const F32x16 magic = splat(0x1.8p23F);                         // adding and subtracting it rounds to an integer
  const F32x16 n = fma(x, splat(0x1.715476p0F), magic) - magic;  // x / ln 2
  F32x16 r = fma(n, splat(-0x1.62e43p-1F), x);                   // ln 2 in two parts
  r = fma(n, splat(0x1.05c61p-29F), r);
  F32x16 q = splat(0x1.6ac74ep-10F);
  q = fma(q, r, splat(0x1.123dep-7F));
  q = fma(q, r, splat(0x1.555858p-5F));
  q = fma(q, r, splat(0x1.55548cp-3F));
  q = fma(q, r, splat(0x1.fffffcp-2F));
  return {fma(r * r, q, r), n};
}

/// e^x for x that is not positive: 0 below -104; NaN stays NaN. exp_down(0) is exactly 1.
inline F32x16 exp_down(F32x16 x) {
  const ReducedExp e = reduce_exp(max(splat(-104.0F), x));
  return times_power_of_2(splat(1.0F) + e.tail, e.n);
}

/// e^x: infinity above 88.73, else as exp_down.
inline F32x16 exp(F32x16 x) {
  return exp_down(min(splat(89.0F), x));
}

inline F32x16 tanh(F32x16 x) {
  // (e^2|x| - 1) / (e^2|x| + 1); from 2|x| = 20 on it is 1.
  const ReducedExp e = reduce_exp(min(splat(20.0F), abs(x) + abs(x)));
  const F32x16 scale = times_power_of_2(splat(1.0F), e.n);
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

/// 1 / (1 + e^-x)
inline F32x16 sigmoid(F32x16 x) {
  return splat(1.0F) / (splat(1.0F) + exp(zero() - x));
}

/// An activation of one value.
inline F32x16 activate(Activation activation, F32x16 x) {
  switch (activation) {
    case Activation::kSilu: return silu(x);
    case Activation::kSigmoid: return sigmoid(x);
    case Activation::kGeluTanh: return gelu_tanh(x);
    case Activation::kSiluClamped: break;  // of two values: glu_lanes
  }
  return x;
}

/// cap * tanh(x / cap)
inline F32x16 softcap(F32x16 x, float cap) {
  return splat(cap) * tanh(x / splat(cap));
}

}  // namespace tessera::TESSERA_ISA

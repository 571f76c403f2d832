#pragma once
// Exponential, logarithm and power from exactly rounded operations alone: C libraries differ in the last bit, and so
// would the tokens that a seed gives.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tessera {

/// 2^k. REQUIRES: -1022 <= k <= 1023.
inline double power_of_2(int64_t k) {
  return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52U);
}

// e^x by x = k ln 2 + r with |r| <= 0.35 and a Taylor polynomial, whose error is below 1e-17 there.
constexpr double kExpLog2E = 1.4426950408889634;
constexpr double kExpLn2High = 6.93147180369123816490e-01;  // 21 low bits are 0: k * kExpLn2High is exact
constexpr double kExpLn2Low = 1.90821492927058770002e-10;

/// e^r for |r| <= 0.35; F64: double or a vector of them.
template <typename F64>
F64 exp_polynomial(F64 r) {
  constexpr double kEven[] = {1.0, 1.0 / 2, 1.0 / 24, 1.0 / 720, 1.0 / 40320, 1.0 / 3628800, 1.0 / 479001600};
  constexpr double kOdd[] = {1.0, 1.0 / 6, 1.0 / 120, 1.0 / 5040, 1.0 / 362880, 1.0 / 39916800, 1.0 / 6227020800};
  const F64 r2 = r * r;
  F64 even = r2 * kEven[6] + kEven[5];  // two chains: half the latency of one
  F64 odd = r2 * kOdd[6] + kOdd[5];
#pragma GCC unroll 5
  for (int n = 4; n >= 0; --n) {
    even = even * r2 + kEven[n];
    odd = odd * r2 + kOdd[n];
  }
  return even + r * odd;
}

/// e^x within 2 ulp; 0 below -745, infinity above 709; NaN gives 0.
inline double exact_exp(double x) {
  if (!(x > -745)) {  // the result is below the smallest double
    return 0;
  }
  if (x > 709) {
    return std::numeric_limits<double>::infinity();
  }
  const double nearest = x * kExpLog2E + 0.5;
  auto floor = static_cast<int32_t>(nearest);  // the library's floor and ldexp would cost more than all the rest
  floor -= static_cast<double>(floor) > nearest ? 1 : 0;
  const double k = floor;
  const double mantissa = exp_polynomial((x - k * kExpLn2High) - k * kExpLn2Low);
  if (floor < -1022) {  // rounds once, in the last product
    return mantissa * power_of_2(floor + 200) * power_of_2(-200);
  }
  return mantissa * power_of_2(floor);
}

/// Two doubles, which every x86-64 processor computes with at once.
using F64x2 = double __attribute__((vector_size(16)));

/// exact_exp of both, bit for bit. REQUIRES: -700 <= x <= 700.
inline F64x2 exact_exp(F64x2 x) {
  using U64x2 = uint64_t __attribute__((vector_size(16)));
  constexpr double kMagic = 0x1.8p52;  // adding it rounds to an integer, which the low bits then hold
  const F64x2 nearest = x * kExpLog2E + 0.5;
  F64x2 k = (nearest + kMagic) - kMagic;
  k = k > nearest ? k - 1.0 : k;
  const F64x2 mantissa = exp_polynomial((x - k * kExpLn2High) - k * kExpLn2Low);
  const auto bits = reinterpret_cast<U64x2>(k + kMagic);
  return mantissa * reinterpret_cast<F64x2>((bits << 52U) + (uint64_t{1023} << 52U));
}

/// Natural logarithm within 2 ulp for x > 0 and finite; minus infinity for everything else.
inline double exact_log(double x) {
  if (!(x > 0) || x > std::numeric_limits<double>::max()) {
    return -std::numeric_limits<double>::infinity();
  }
  constexpr double kSqrtHalf = 0.70710678118654752;
  constexpr double kLn2High = 6.93147180369123816490e-01;
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // x = m 2^exponent, brought to m in [sqrt(1/2), sqrt(2))
  if (m < kSqrtHalf) {
    m *= 2;
    --exponent;
  }
  // ln m = 2 artanh s with |s| <= 0.172: the terms from s^25 on are below 1e-20.
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double tail = 0;
  for (int n = 23; n >= 3; n -= 2) {
    tail = tail * s2 + 1.0 / n;
  }
  const double k = exponent;
  return k * kLn2High + (2 * s + (2 * s * s2 * tail + k * kLn2Low));
}

/// base^exponent; 0 for a base that is not positive.
inline double exact_pow(double base, double exponent) {
  return exponent == 0 ? 1 : exact_exp(exponent * exact_log(base));
}

}  // namespace tessera

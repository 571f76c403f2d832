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

/// e^x within 2 ulp; 0 below -745, infinity above 709; NaN gives 0.
inline double exact_exp(double x) {
  if (!(x > -745)) {  // the result is below the smallest double
    return 0;
  }
  if (x > 709) {
    return std::numeric_limits<double>::infinity();
  }
  // x = k ln 2 + r with |r| <= 0.35; the Taylor polynomial's error is below 1e-17 there.
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2High = 6.93147180369123816490e-01;  // 21 low bits are 0: k * kLn2High is exact
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  constexpr double kEven[] = {1.0, 1.0 / 2, 1.0 / 24, 1.0 / 720, 1.0 / 40320, 1.0 / 3628800, 1.0 / 479001600};
  constexpr double kOdd[] = {1.0, 1.0 / 6, 1.0 / 120, 1.0 / 5040, 1.0 / 362880, 1.0 / 39916800, 1.0 / 6227020800};
  const double nearest = x * kLog2E + 0.5;
  auto floor = static_cast<int32_t>(nearest);  // the library's floor and ldexp would cost more than all the rest
  floor -= static_cast<double>(floor) > nearest ? 1 : 0;
  const double k = floor;
  const double r = (x - k * kLn2High) - k * kLn2Low;
  const double r2 = r * r;
  double even = 0;  // two chains: half the latency of one
  double odd = 0;
#pragma GCC unroll 7
  for (int n = 6; n >= 0; --n) {
    even = even * r2 + kEven[n];
    odd = odd * r2 + kOdd[n];
  }
  const double mantissa = even + r * odd;
  if (floor < -1022) {  // rounds once, in the last product
    return mantissa * power_of_2(floor + 200) * power_of_2(-200);
  }
  return mantissa * power_of_2(floor);
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

#pragma once
// vec.h in plain C++: the meaning of each operation. Include vec.h instead.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tensor/half.h"

namespace tessera::portable {

/// Running vectors that a loop keeps in registers; any number here.
inline constexpr int kAccumulators = 16;

struct F32x16 {
  float v[16];
};
struct I32x16 {
  uint32_t v[16];  // unsigned: wrap-around is defined
};

template <class Function>
inline F32x16 each(Function f) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = f(i);
  }
  return r;
}
template <class Function>
inline I32x16 each_int(Function f) {
  I32x16 r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = f(i);
  }
  return r;
}

inline F32x16 splat(float x) {
  return each([&](int) { return x; });
}
inline F32x16 zero() {
  return splat(0);
}
inline F32x16 load(const float* p) {
  return each([&](int i) { return p[i]; });
}
inline F32x16 load_n(const float* p, int64_t n) {
  return each([&](int i) { return i < n ? p[i] : 0.0F; });
}
inline void store(float* p, F32x16 a) {
  std::memcpy(p, a.v, sizeof(a.v));
}
inline void store_n(float* p, F32x16 a, int64_t n) {
  for (int i = 0; i < 16 && i < n; ++i) {
    p[i] = a.v[i];
  }
}

inline F32x16 operator+(F32x16 a, F32x16 b) {
  return each([&](int i) { return a.v[i] + b.v[i]; });
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  return each([&](int i) { return a.v[i] - b.v[i]; });
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  return each([&](int i) { return a.v[i] * b.v[i]; });
}
inline F32x16 operator/(F32x16 a, F32x16 b) {
  return each([&](int i) { return a.v[i] / b.v[i]; });
}
/// a * b + c, rounded once.
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return each([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
/// a where a > b, else b (so b when either is NaN).
inline F32x16 max(F32x16 a, F32x16 b) {
  return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
/// a where a < b, else b.
inline F32x16 min(F32x16 a, F32x16 b) {
  return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline F32x16 abs(F32x16 a) {
  return each([&](int i) { return std::fabs(a.v[i]); });
}
/// Magnitude of a with the sign of b.
inline F32x16 copysign(F32x16 a, F32x16 b) {
  return each([&](int i) { return std::copysign(a.v[i], b.v[i]); });
}
/// a in lanes begin <= i < end, else b.
inline F32x16 select_range(F32x16 a, F32x16 b, int64_t begin, int64_t end) {
  return each([&](int i) { return i >= begin && i < end ? a.v[i] : b.v[i]; });
}

/// Splits the 16 pairs of a, b into their first and second elements.
inline void deinterleave(F32x16 a, F32x16 b, F32x16& first, F32x16& second) {
  first = each([&](int i) { return i < 8 ? a.v[2 * i] : b.v[2 * i - 16]; });
  second = each([&](int i) { return i < 8 ? a.v[2 * i + 1] : b.v[2 * i - 15]; });
}
/// The inverse: pairs 0 - 7 to a, 8 - 15 to b.
inline void interleave(F32x16 first, F32x16 second, F32x16& a, F32x16& b) {
  a = each([&](int i) { return i % 2 == 0 ? first.v[i / 2] : second.v[i / 2]; });
  b = each([&](int i) { return i % 2 == 0 ? first.v[8 + i / 2] : second.v[8 + i / 2]; });
}

inline I32x16 bits(F32x16 a) {
  return each_int([&](int i) { return std::bit_cast<uint32_t>(a.v[i]); });
}
inline F32x16 as_float(I32x16 a) {
  return each([&](int i) { return std::bit_cast<float>(a.v[i]); });
}
/// a * 2^n, rounded once. REQUIRES: a or n is NaN, or 0.5 <= |a| < 4 and n is integral, |n| < 250.
inline F32x16 times_power_of_2(F32x16 a, F32x16 n) {
  return each([&](int i) { return n.v[i] == n.v[i] ? std::ldexp(a.v[i], static_cast<int>(n.v[i])) : n.v[i]; });
}
inline I32x16 splat_int(int32_t x) {
  return each_int([&](int) { return static_cast<uint32_t>(x); });
}
inline I32x16 operator+(I32x16 a, I32x16 b) {
  return each_int([&](int i) { return a.v[i] + b.v[i]; });
}
inline I32x16 operator-(I32x16 a, I32x16 b) {
  return each_int([&](int i) { return a.v[i] - b.v[i]; });
}
template <int kBits>
inline I32x16 shift_left(I32x16 a) {
  return each_int([&](int i) { return a.v[i] << kBits; });
}
/// Keeps the sign.
template <int kBits>
inline I32x16 shift_right(I32x16 a) {
  return each_int([&](int i) { return static_cast<uint32_t>(static_cast<int32_t>(a.v[i]) >> kBits); });
}
/// Writes the low byte of each lane.
inline void store_low_bytes(int8_t* p, I32x16 a) {
  for (int i = 0; i < 16; ++i) {
    p[i] = static_cast<int8_t>(a.v[i] & 0xFFU);
  }
}
inline int32_t sum_int(I32x16 a) {
  uint32_t sum = 0;
  for (const uint32_t x : a.v) {
    sum += x;
  }
  return static_cast<int32_t>(sum);
}

/// Sum of the lanes in the tree order of kernels/ops/summation.h.
inline float sum(F32x16 a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      a.v[i] += a.v[i + half];
    }
  }
  return a.v[0];
}
inline float max_lane(F32x16 a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
    }
  }
  return a.v[0];
}
/// Lane k: sum(a[k]).
inline F32x16 sum_each(const F32x16 (&a)[16]) {
  return each([&](int i) { return sum(a[i]); });
}

inline F32x16 load_f16(const uint16_t* p) {
  return each([&](int i) { return f16_to_f32(p[i]); });
}
inline F32x16 load_bf16(const uint16_t* p) {
  return each([&](int i) { return bf16_to_f32(p[i]); });
}
inline F32x16 load_i8(const int8_t* p) {
  return each([&](int i) { return static_cast<float>(p[i]); });
}
/// Low nibbles of 16 bytes, minus 8; then the high ones.
inline F32x16 load_low_nibbles(const uint8_t* p) {
  return each([&](int i) { return static_cast<float>((p[i] & 15) - 8); });
}
inline F32x16 load_high_nibbles(const uint8_t* p) {
  return each([&](int i) { return static_cast<float>((p[i] >> 4) - 8); });
}
/// Rounds to nearest even.
inline void store_f16(uint16_t* p, F32x16 a) {
  for (int i = 0; i < 16; ++i) {
    p[i] = f32_to_f16(a.v[i]);
  }
}
inline float f16_value(uint16_t h) {
  return f16_to_f32(h);
}

}  // namespace tessera::portable

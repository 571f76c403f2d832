#pragma once
// 16-bit floats to and from float32, one at a time, in integer arithmetic: the same bits on every machine and in every
// floating-point mode. To float32 is exact; from float32 rounds to nearest, ties to even; NaN stays a (quiet) NaN.

#include <bit>
#include <cstdint>

namespace tessera {

/// IEEE binary16 (1 sign, 5 exponent, 10 fraction bits) to float32.
[[nodiscard]] inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000U) << 16;
  const uint32_t magnitude = h & 0x7FFFU;
  uint32_t bits = 0;
  if (magnitude >= 0x7C00U) {  // infinity, NaN
    bits = 0x7F800000U | (magnitude & 0x3FFU) << 13;
  } else if (magnitude >= 0x400U) {  // normal: move the exponent's bias from 15 to 127
    bits = (magnitude << 13) + (112U << 23);
  } else if (magnitude != 0) {  // fraction × 2^-24, normalised: its leading bit becomes the implicit one
    const int shift = std::countl_zero(magnitude) - 21;
    bits = (static_cast<uint32_t>(113 - shift) << 23) | ((magnitude << shift & 0x3FFU) << 13);
  }
  return std::bit_cast<float>(sign | bits);
}

/// float32 to IEEE binary16; 65520 and more become infinity.
[[nodiscard]] inline uint16_t f32_to_f16(float f) {
  const auto x = std::bit_cast<uint32_t>(f);
  const auto sign = static_cast<uint16_t>(x >> 16 & 0x8000U);
  const uint32_t magnitude = x & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<uint16_t>(sign | 0x7E00U | (magnitude >> 13 & 0x3FFU));
  }
  if (magnitude >= 0x477FF000U) {
    return static_cast<uint16_t>(sign | 0x7C00U);
  }
  if (magnitude >= 0x38800000U) {  // normal: a carry out of the fraction rightly moves into the exponent
    const uint32_t rounded = magnitude + 0xFFFU + (magnitude >> 13 & 1U);
    return static_cast<uint16_t>(sign | ((rounded - (112U << 23)) >> 13));
  }
  const uint32_t exponent = magnitude >> 23;
  if (exponent < 102) {  // below half of 2^-24
    return sign;
  }
  const uint32_t fraction = (magnitude & 0x7FFFFFU) | 0x800000U;
  const uint32_t shift = 126 - exponent;  // 14 … 24
  const uint32_t half = 1U << (shift - 1);
  const uint32_t rounded = (fraction + half - 1 + (fraction >> shift & 1U)) >> shift;
  return static_cast<uint16_t>(sign | rounded);
}

/// bfloat16 (the upper half of a float32) to float32.
[[nodiscard]] inline float bf16_to_f32(uint16_t h) {
  return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}

/// float32 to bfloat16.
[[nodiscard]] inline uint16_t f32_to_bf16(float f) {
  const auto x = std::bit_cast<uint32_t>(f);
  if ((x & 0x7FFFFFFFU) > 0x7F800000U) {
    return static_cast<uint16_t>(x >> 16 | 0x40U);
  }
  return static_cast<uint16_t>((x + 0x7FFFU + (x >> 16 & 1U)) >> 16);
}

}  // namespace tessera

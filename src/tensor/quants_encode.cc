// Encoders: each block is scaled by its largest value or its range and rounded to nearest, ties to even. Codes are
// computed with the scale as it is stored (rounded to f16), so that decoding is as close as the format allows.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "tensor/quants_internal.h"

namespace tessera {
namespace {

// v to the nearest integer in [lo, hi], ties to even; NaN becomes lo. REQUIRES: |lo|, |hi| < 2^22.
int round_clamped(float v, int lo, int hi) {
  const auto low = static_cast<float>(lo);
  const auto high = static_cast<float>(hi);
  const float clamped = v >= low ? (v <= high ? v : high) : low;
  // Adding 1.5 × 2^23 leaves the integer in the low bits of the fraction.
  return static_cast<int>(std::bit_cast<uint32_t>(clamped + 12582912.0F) & 0x7FFFFFU) - 0x400000;
}

float inverse(float d) {
  return d != 0.0F ? 1.0F / d : 0.0F;
}

// Stores d as f16 at p and returns what was stored.
float store_f16(uint8_t* p, float d) {
  const uint16_t h = f32_to_f16(d);
  store(p, h);
  return f16_to_f32(h);
}

// The element of largest magnitude, with its sign; the first of equals. NaN if there is one: a block's scale then makes
// all of it NaN, so that a cache of quantised types hides no broken activation.
float signed_max(const float* x, int n) {
  float best = 0.0F;
  for (int i = 0; i < n; ++i) {
    if (std::isnan(x[i])) {
      return x[i];
    }
    if (std::abs(x[i]) > std::abs(best)) {
      best = x[i];
    }
  }
  return best;
}

struct Range {
  float min, max;
};
// NaN if there is one.
Range range_of(const float* x, int n) {
  const float* nan = std::find_if(x, x + n, [](float v) { return std::isnan(v); });
  if (nan != x + n) {
    return {*nan, *nan};
  }
  const auto [lo, hi] = std::minmax_element(x, x + n);
  return {*lo, *hi};
}

// 32 codes of 4 bits: the first 16 elements in the low nibbles.
void store_nibbles(const std::array<int, 32>& codes, uint8_t* q) {
  for (size_t i = 0; i < 16; ++i) {
    q[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
  }
}

// The fifth bits of 32 codes, bit i of element i.
void store_high_bits(const std::array<int, 32>& codes, uint8_t* p) {
  uint32_t bits = 0;
  for (size_t i = 0; i < 32; ++i) {
    bits |= static_cast<uint32_t>(codes[i] >> 4 & 1) << i;
  }
  store(p, bits);
}

// Codes 0 … 2 zero - 1 of values that are symmetric around code `zero`. The extreme value gets code 0, which reaches
// one step further than the last code.
std::array<int, 32> symmetric_codes(const float* src, int zero, uint8_t* scale_at) {
  const float d = store_f16(scale_at, signed_max(src, 32) / static_cast<float>(-zero));
  const float inv = inverse(d);
  std::array<int, 32> codes{};
  for (size_t i = 0; i < 32; ++i) {
    codes[i] = round_clamped(src[i] * inv + static_cast<float>(zero), 0, 2 * zero - 1);
  }
  return codes;
}

// Codes 0 … last of values between their minimum and maximum; scale and minimum are stored at scale_at.
std::array<int, 32> affine_codes(const float* src, int last, uint8_t* scale_at) {
  const Range range = range_of(src, 32);
  const float d = store_f16(scale_at, (range.max - range.min) / static_cast<float>(last));
  const float m = store_f16(scale_at + 2, range.min);
  const float inv = inverse(d);
  std::array<int, 32> codes{};
  for (size_t i = 0; i < 32; ++i) {
    codes[i] = round_clamped((src[i] - m) * inv, 0, last);
  }
  return codes;
}

// 32 codes -127 … 127 at q; the scale is stored at scale_at. Returns {scale, sum of codes}.
struct ByteCodes {
  float d;
  int sum;
};
ByteCodes store_byte_codes(const float* src, uint8_t* scale_at, uint8_t* q) {
  const float d = store_f16(scale_at, std::abs(signed_max(src, 32)) / 127.0F);
  const float inv = inverse(d);
  int sum = 0;
  for (int i = 0; i < 32; ++i) {
    const int code = round_clamped(src[i] * inv, -127, 127);
    q[i] = static_cast<uint8_t>(code);
    sum += code;
  }
  return {d, sum};
}

// Packs eight 6-bit scales and minima into 12 bytes, the inverse of packed_scale_min.
void store_scale_mins(const std::array<ScaleMin, 8>& subs, uint8_t* packed) {
  for (size_t j = 0; j < 4; ++j) {
    packed[j] = static_cast<uint8_t>(subs[j].scale | subs[j + 4].scale >> 4 << 6);
    packed[j + 4] = static_cast<uint8_t>(subs[j].min | subs[j + 4].min >> 4 << 6);
    packed[j + 8] = static_cast<uint8_t>((subs[j + 4].scale & 15) | (subs[j + 4].min & 15) << 4);
  }
}

}  // namespace

void encode_q4_0(const float* src, uint8_t* dst) {
  store_nibbles(symmetric_codes(src, 8, dst), dst + 2);
}

void encode_q4_1(const float* src, uint8_t* dst) {
  store_nibbles(affine_codes(src, 15, dst), dst + 4);
}

void encode_q5_0(const float* src, uint8_t* dst) {
  const auto codes = symmetric_codes(src, 16, dst);
  store_high_bits(codes, dst + 2);
  store_nibbles(codes, dst + 6);
}

void encode_q5_1(const float* src, uint8_t* dst) {
  const auto codes = affine_codes(src, 31, dst);
  store_high_bits(codes, dst + 4);
  store_nibbles(codes, dst + 8);
}

void encode_q8_0(const float* src, uint8_t* dst) {
  store_byte_codes(src, dst, dst + 2);
}

void encode_q8_1(const float* src, uint8_t* dst) {
  const ByteCodes codes = store_byte_codes(src, dst, dst + 4);
  store_f16(dst + 2, codes.d * static_cast<float>(codes.sum));
}

void encode_q4_k(const float* src, uint8_t* dst) {
  std::array<float, 8> scales{};
  std::array<float, 8> mins{};  // what is subtracted, never negative
  for (size_t s = 0; s < 8; ++s) {
    const Range range = range_of(src + 32 * s, 32);
    const float low = std::min(range.min, 0.0F);
    scales[s] = std::max(range.max - low, 0.0F) / 15.0F;
    mins[s] = -low;
  }
  const float d = store_f16(dst, *std::ranges::max_element(scales) / 63.0F);
  const float dmin = store_f16(dst + 2, *std::ranges::max_element(mins) / 63.0F);
  std::array<ScaleMin, 8> subs{};
  std::array<int, 256> codes{};
  for (size_t s = 0; s < 8; ++s) {
    subs[s] = {static_cast<uint8_t>(round_clamped(scales[s] * inverse(d), 0, 63)),
               static_cast<uint8_t>(round_clamped(mins[s] * inverse(dmin), 0, 63))};
    const float inv = inverse(d * static_cast<float>(subs[s].scale));
    const float min = dmin * static_cast<float>(subs[s].min);
    for (size_t i = 32 * s; i < 32 * s + 32; ++i) {
      codes[i] = round_clamped((src[i] + min) * inv, 0, 15);
    }
  }
  store_scale_mins(subs, dst + 4);
  for (size_t i = 0; i < 128; ++i) {
    const size_t first = i / 32 * 64 + i % 32;
    dst[16 + i] = static_cast<uint8_t>(codes[first] | codes[first + 32] << 4);
  }
}

void encode_q6_k(const float* src, uint8_t* dst) {
  std::array<float, 16> scales{};
  for (size_t s = 0; s < 16; ++s) {
    scales[s] = signed_max(src + 16 * s, 16) / -32.0F;
  }
  // The scale of largest magnitude gets the code -128.
  const float d = store_f16(dst + 208, signed_max(scales.data(), 16) / -128.0F);
  std::fill_n(dst, 192, uint8_t{0});
  for (size_t s = 0; s < 16; ++s) {
    const int scale = round_clamped(scales[s] * inverse(d), -128, 127);
    dst[192 + s] = static_cast<uint8_t>(scale);
    const float inv = inverse(d * static_cast<float>(scale));
    for (size_t i = 16 * s; i < 16 * s + 16; ++i) {
      const auto code = static_cast<uint32_t>(round_clamped(src[i] * inv, -32, 31) + 32);
      const size_t half = i / 128;
      const size_t run = i % 128 / 32;
      dst[half * 64 + run % 2 * 32 + i % 32] |= static_cast<uint8_t>((code & 15U) << (run / 2 * 4));
      dst[128 + half * 32 + i % 32] |= static_cast<uint8_t>(code >> 4 << (run * 2));
    }
  }
}

}  // namespace tessera

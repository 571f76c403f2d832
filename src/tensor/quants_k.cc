// K formats: super-blocks of 256 elements, whose sub-blocks of 16 or 32 have small integer scales.

#include "tensor/quants_internal.h"

namespace tessera {

void decode_q2_k(const uint8_t* src, float* dst) {
  const uint8_t* scales = src;  // [16]: low nibble scale, high nibble minimum
  const uint8_t* q = src + 16;  // [2][32]: four elements a byte, 32 apart
  const float d = load_f16(src + 80);
  const float dmin = load_f16(src + 82);
  for (int i = 0; i < 256; ++i) {
    const int code = q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    const float scale = d * static_cast<float>(scales[i / 16] & 15);
    const float min = dmin * static_cast<float>(scales[i / 16] >> 4);
    dst[i] = scale * static_cast<float>(code) - min;
  }
}

void decode_q3_k(const uint8_t* src, float* dst) {
  const uint8_t* high = src;         // [32]: bit b is the high bit of element 32 b + byte
  const uint8_t* q = src + 32;       // [2][32]: low two bits, four elements a byte, 32 apart
  const uint8_t* packed = src + 96;  // [12]: 16 scales of 6 bits: low nibbles in bytes 0 … 7, high bits in 8 … 11
  const float d = load_f16(src + 108);
  for (int s = 0; s < 16; ++s) {
    const int low = s < 8 ? packed[s] & 15 : packed[s - 8] >> 4;
    const int scale_code = low | (packed[8 + s % 4] >> (s / 4 * 2) & 3) << 4;
    const float scale = d * static_cast<float>(scale_code - 32);
    for (int i = s * 16; i < s * 16 + 16; ++i) {
      const int code = q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
      const int offset = (high[i % 32] >> (i / 32) & 1) != 0 ? 0 : 4;
      dst[i] = scale * static_cast<float>(code - offset);
    }
  }
}

void decode_q4_k(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  const float dmin = load_f16(src + 2);
  const uint8_t* packed = src + 4;
  const uint8_t* q = src + 16;  // [4][32]: low nibbles are 32 elements, high nibbles the next 32
  for (int s = 0; s < 8; ++s) {
    const ScaleMin sub = packed_scale_min(packed, s);
    const float scale = d * static_cast<float>(sub.scale);
    const float min = dmin * static_cast<float>(sub.min);
    for (int i = 0; i < 32; ++i) {
      const int code = q[s / 2 * 32 + i] >> (s % 2 * 4) & 15;
      dst[s * 32 + i] = scale * static_cast<float>(code) - min;
    }
  }
}

void decode_q5_k(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  const float dmin = load_f16(src + 2);
  const uint8_t* packed = src + 4;
  const uint8_t* high = src + 16;  // [32]: bit s is the high bit of the byte's element in sub-block s
  const uint8_t* q = src + 48;     // [4][32] as in Q4_K
  for (int s = 0; s < 8; ++s) {
    const ScaleMin sub = packed_scale_min(packed, s);
    const float scale = d * static_cast<float>(sub.scale);
    const float min = dmin * static_cast<float>(sub.min);
    for (int i = 0; i < 32; ++i) {
      const int code = (q[s / 2 * 32 + i] >> (s % 2 * 4) & 15) | (high[i] >> s & 1) << 4;
      dst[s * 32 + i] = scale * static_cast<float>(code) - min;
    }
  }
}

void decode_q6_k(const uint8_t* src, float* dst) {
  const uint8_t* low = src;           // [2][64]: low nibbles are runs 0 and 1 of 32 elements, high nibbles runs 2 and 3
  const uint8_t* high = src + 128;    // [2][32]: two bits for each of the four runs
  const uint8_t* scales = src + 192;  // [16] i8
  const float d = load_f16(src + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int run = i % 128 / 32;
    const int nibble = low[half * 64 + run % 2 * 32 + i % 32] >> (run / 2 * 4) & 15;
    const int top = high[half * 32 + i % 32] >> (run * 2) & 3;
    const float scale = d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    dst[i] = scale * static_cast<float>((nibble | top << 4) - 32);
  }
}

void decode_q8_k(const uint8_t* src, float* dst) {
  const auto d = load<float>(src);
  for (int i = 0; i < 256; ++i) {
    dst[i] = d * static_cast<float>(static_cast<int8_t>(src[4 + i]));
  }
}

}  // namespace tessera

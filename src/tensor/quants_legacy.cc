// Blocks of 32 elements with one scale, and a minimum in the _1 formats. Nibbles: the low ones are the first 16
// elements, the high ones the last 16.

#include "tensor/quants_internal.h"

namespace tessera {

void decode_q4_0(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  const uint8_t* q = src + 2;
  for (int i = 0; i < 16; ++i) {
    dst[i] = static_cast<float>((q[i] & 15) - 8) * d;
    dst[i + 16] = static_cast<float>((q[i] >> 4) - 8) * d;
  }
}

void decode_q4_1(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  const float m = load_f16(src + 2);
  const uint8_t* q = src + 4;
  for (int i = 0; i < 16; ++i) {
    dst[i] = static_cast<float>(q[i] & 15) * d + m;
    dst[i + 16] = static_cast<float>(q[i] >> 4) * d + m;
  }
}

void decode_q5_0(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  const auto high = load<uint32_t>(src + 2);  // bit i belongs to element i
  const uint8_t* q = src + 6;
  for (int i = 0; i < 16; ++i) {
    const int low_q = (q[i] & 15) | static_cast<int>(high >> i & 1U) << 4;
    const int high_q = (q[i] >> 4) | static_cast<int>(high >> (i + 16) & 1U) << 4;
    dst[i] = static_cast<float>(low_q - 16) * d;
    dst[i + 16] = static_cast<float>(high_q - 16) * d;
  }
}

void decode_q5_1(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  const float m = load_f16(src + 2);
  const auto high = load<uint32_t>(src + 4);
  const uint8_t* q = src + 8;
  for (int i = 0; i < 16; ++i) {
    const int low_q = (q[i] & 15) | static_cast<int>(high >> i & 1U) << 4;
    const int high_q = (q[i] >> 4) | static_cast<int>(high >> (i + 16) & 1U) << 4;
    dst[i] = static_cast<float>(low_q) * d + m;
    dst[i + 16] = static_cast<float>(high_q) * d + m;
  }
}

void decode_q8_0(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  for (int i = 0; i < 32; ++i) {
    dst[i] = static_cast<float>(static_cast<int8_t>(src[2 + i])) * d;
  }
}

void decode_q8_1(const uint8_t* src, float* dst) {
  const float d = load_f16(src);  // the second half float, d × sum of the codes, serves products only
  for (int i = 0; i < 32; ++i) {
    dst[i] = static_cast<float>(static_cast<int8_t>(src[4 + i])) * d;
  }
}

}  // namespace tessera

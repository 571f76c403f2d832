#pragma once
// Block decoders and encoders behind quants.h, one per format, grouped by family in quants_<family>.cc. Internal.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/half.h"

namespace tessera {

/// Reads one block's bytes at src and writes its elements to dst.
using DecodeBlock = void (*)(const uint8_t* src, float* dst);
/// Reads one block's elements at src and writes its bytes to dst.
using EncodeBlock = void (*)(const float* src, uint8_t* dst);

/// The T at p, little-endian, any alignment.
template <typename T>
inline T load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
template <typename T>
inline void store(uint8_t* p, T value) {
  std::memcpy(p, &value, sizeof value);
}
inline float load_f16(const uint8_t* p) {
  return f16_to_f32(load<uint16_t>(p));
}

/// The 6-bit scale and minimum of sub-block j (0 … 7) from the 12 bytes that Q4_K and Q5_K pack them into.
struct ScaleMin {
  uint8_t scale;
  uint8_t min;
};
inline ScaleMin packed_scale_min(const uint8_t* packed, int j) {
  if (j < 4) {
    return {static_cast<uint8_t>(packed[j] & 63), static_cast<uint8_t>(packed[j + 4] & 63)};
  }
  return {static_cast<uint8_t>((packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4)),
          static_cast<uint8_t>((packed[j + 4] >> 4) | (packed[j] >> 6 << 4))};
}

// quants_legacy.cc: blocks of 32 with one scale.
void decode_q4_0(const uint8_t* src, float* dst);
void decode_q4_1(const uint8_t* src, float* dst);
void decode_q5_0(const uint8_t* src, float* dst);
void decode_q5_1(const uint8_t* src, float* dst);
void decode_q8_0(const uint8_t* src, float* dst);
void decode_q8_1(const uint8_t* src, float* dst);

// quants_k.cc: super-blocks of 256 with scales of sub-blocks.
void decode_q2_k(const uint8_t* src, float* dst);
void decode_q3_k(const uint8_t* src, float* dst);
void decode_q4_k(const uint8_t* src, float* dst);
void decode_q5_k(const uint8_t* src, float* dst);
void decode_q6_k(const uint8_t* src, float* dst);
void decode_q8_k(const uint8_t* src, float* dst);

// quants_iq.cc: codebooks.
void decode_iq2_xxs(const uint8_t* src, float* dst);
void decode_iq2_xs(const uint8_t* src, float* dst);
void decode_iq2_s(const uint8_t* src, float* dst);
void decode_iq3_xxs(const uint8_t* src, float* dst);
void decode_iq3_s(const uint8_t* src, float* dst);
void decode_iq1_s(const uint8_t* src, float* dst);
void decode_iq1_m(const uint8_t* src, float* dst);
void decode_iq4_nl(const uint8_t* src, float* dst);
void decode_iq4_xs(const uint8_t* src, float* dst);

// quants_small.cc: one- and two-bit, ternary and 4-bit float formats.
void decode_tq1_0(const uint8_t* src, float* dst);
void decode_tq2_0(const uint8_t* src, float* dst);
void decode_mxfp4(const uint8_t* src, float* dst);
void decode_nvfp4(const uint8_t* src, float* dst);
void decode_q1_0(const uint8_t* src, float* dst);
void decode_q2_0(const uint8_t* src, float* dst);

// quants_encode.cc
void encode_q4_0(const float* src, uint8_t* dst);
void encode_q4_1(const float* src, uint8_t* dst);
void encode_q5_0(const float* src, uint8_t* dst);
void encode_q5_1(const float* src, uint8_t* dst);
void encode_q8_0(const float* src, uint8_t* dst);
void encode_q8_1(const float* src, uint8_t* dst);
void encode_q4_k(const float* src, uint8_t* dst);
void encode_q6_k(const float* src, uint8_t* dst);

}  // namespace tessera

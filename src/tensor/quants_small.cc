// One- and two-bit, ternary and 4-bit float formats.

#include <bit>

#include "tensor/iq_grids.h"
#include "tensor/quants_internal.h"

namespace tessera {
namespace {

// Digit n (0 is the first) of a byte that holds base-3 digits as a fraction: byte / 256 = 0.d0 d1 d2 … in base 3.
int ternary_digit(uint8_t byte, int n) {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  const auto shifted = static_cast<uint8_t>(byte * kPowers[n]);
  return shifted * 3 >> 8;
}

// Half the value of an E8M0 exponent, 2^(e-128): the codes of kFp4Values are doubled.
float half_e8m0(uint8_t e) {
  const uint32_t bits = e < 2 ? 0x00200000U << e : static_cast<uint32_t>(e - 1) << 23;
  return std::bit_cast<float>(bits);
}

// Half the value of an unsigned 4-bit-exponent, 3-bit-fraction float with bias 7; 0x7F stands for 0.
float half_ue4m3(uint8_t x) {
  const int exponent = x >> 3 & 15;
  const int fraction = x & 7;
  if (x == 0x7F) {
    return 0.0F;
  }
  if (exponent == 0) {
    return static_cast<float>(fraction) * 0x1p-10F;
  }
  const uint32_t bits = static_cast<uint32_t>(exponent - 8 + 127) << 23 | static_cast<uint32_t>(fraction) << 20;
  return std::bit_cast<float>(bits);
}

float fp4_value(int code) {
  return static_cast<float>(kFp4Values[static_cast<size_t>(code)]);
}

}  // namespace

void decode_tq1_0(const uint8_t* src, float* dst) {
  const float d = load_f16(src + 52);
  // Runs of bytes; digit n of all bytes of a run comes before digit n + 1.
  struct Run {
    int offset, n_bytes, n_digits;
  };
  constexpr Run kRuns[3] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
  for (const Run& run : kRuns) {
    for (int n = 0; n < run.n_digits; ++n) {
      for (int i = 0; i < run.n_bytes; ++i) {
        *dst++ = static_cast<float>(ternary_digit(src[run.offset + i], n) - 1) * d;
      }
    }
  }
}

void decode_tq2_0(const uint8_t* src, float* dst) {
  const float d = load_f16(src + 64);
  for (int i = 0; i < 256; ++i) {
    const int code = src[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    dst[i] = static_cast<float>(code - 1) * d;
  }
}

void decode_mxfp4(const uint8_t* src, float* dst) {
  const float d = half_e8m0(src[0]);
  for (int i = 0; i < 16; ++i) {
    dst[i] = fp4_value(src[1 + i] & 15) * d;
    dst[i + 16] = fp4_value(src[1 + i] >> 4) * d;
  }
}

void decode_nvfp4(const uint8_t* src, float* dst) {
  for (int g = 0; g < 4; ++g) {
    const float d = half_ue4m3(src[g]);
    const uint8_t* q = src + 4 + 8 * g;
    for (int i = 0; i < 8; ++i) {
      dst[16 * g + i] = fp4_value(q[i] & 15) * d;
      dst[16 * g + 8 + i] = fp4_value(q[i] >> 4) * d;
    }
  }
}

void decode_q1_0(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  for (int i = 0; i < 128; ++i) {
    dst[i] = (src[2 + i / 8] >> (i % 8) & 1) != 0 ? d : -d;
  }
}

void decode_q2_0(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  for (int i = 0; i < 64; ++i) {
    dst[i] = static_cast<float>((src[2 + i / 4] >> (i % 4 * 2) & 3) - 1) * d;
  }
}

}  // namespace tessera

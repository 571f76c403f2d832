// IQ formats: groups of 8 or 4 elements are rows of a codebook, with signs and scales beside.

#include "tensor/iq_grids.h"
#include "tensor/quants_internal.h"

namespace tessera {
namespace {

// n elements of a codebook row, scaled, element i negative where bit i of signs is set.
template <typename Row>
void write_signed(Row row, uint32_t signs, float scale, float* dst) {
  for (size_t i = 0; i < sizeof(Row); ++i) {
    const auto magnitude = static_cast<float>(static_cast<uint8_t>(row >> (8 * i)));
    const float value = scale * magnitude;
    dst[i] = (signs >> i & 1U) != 0 ? -value : value;
  }
}

// 8 elements of the IQ1 codebook, moved by delta and scaled.
void write_iq1(uint32_t index, float delta, float scale, float* dst) {
  const uint64_t row = kIq1Grid[index];
  for (int i = 0; i < 8; ++i) {
    dst[i] = scale * (static_cast<float>(static_cast<int8_t>(row >> (8 * i))) + delta);
  }
}

constexpr float kIq1Delta = 0.125F;

int nibble(uint8_t byte, int which) {
  return byte >> (4 * which) & 15;
}

}  // namespace

void decode_iq2_xxs(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  for (int g = 0; g < 8; ++g) {  // 32 elements: four row indices, then 4 × 7 sign bits and the scale
    const uint8_t* rows = src + 2 + 8 * g;
    const auto bits = load<uint32_t>(rows + 4);
    const float scale = d * (0.5F + static_cast<float>(bits >> 28)) * 0.25F;
    for (int k = 0; k < 4; ++k) {
      write_signed(kIq2xxsGrid[rows[k]], iq_signs(bits >> (7 * k) & 127U), scale, dst + 32 * g + 8 * k);
    }
  }
}

void decode_iq2_xs(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  const uint8_t* scales = src + 66;  // a nibble for 16 elements
  for (int k = 0; k < 32; ++k) {     // 8 elements: 9 bits row, 7 bits signs
    const auto bits = load<uint16_t>(src + 2 + 2 * k);
    const float scale = d * (0.5F + static_cast<float>(nibble(scales[k / 4], k / 2 % 2))) * 0.25F;
    write_signed(kIq2xsGrid[bits & 511U], iq_signs(bits >> 9), scale, dst + 8 * k);
  }
}

void decode_iq2_s(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  const uint8_t* rows = src + 2;  // low 8 bits
  const uint8_t* signs = src + 34;
  const uint8_t* high = src + 66;    // top 2 bits of four rows a byte
  const uint8_t* scales = src + 74;  // a nibble for 16 elements
  for (int k = 0; k < 32; ++k) {
    const uint32_t row = rows[k] | static_cast<uint32_t>(high[k / 4] >> (k % 4 * 2) & 3) << 8;
    const float scale = d * (0.5F + static_cast<float>(nibble(scales[k / 4], k / 2 % 2))) * 0.25F;
    write_signed(kIq2sGrid[row], signs[k], scale, dst + 8 * k);
  }
}

void decode_iq3_xxs(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  const uint8_t* rows = src + 2;
  for (int g = 0; g < 8; ++g) {  // 32 elements: eight rows of 4; 4 × 7 sign bits and the scale
    const auto bits = load<uint32_t>(src + 66 + 4 * g);
    const float scale = d * (0.5F + static_cast<float>(bits >> 28)) * 0.5F;
    for (int k = 0; k < 8; ++k) {
      const uint32_t signs = iq_signs(bits >> (k / 2 * 7) & 127U) >> (k % 2 * 4);
      write_signed(kIq3xxsGrid[rows[8 * g + k]], signs, scale, dst + 32 * g + 4 * k);
    }
  }
}

void decode_iq3_s(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  const uint8_t* rows = src + 2;   // low 8 bits
  const uint8_t* high = src + 66;  // ninth bits of eight rows a byte
  const uint8_t* signs = src + 74;
  const uint8_t* scales = src + 106;  // a nibble for 32 elements
  for (int k = 0; k < 64; ++k) {
    const uint32_t row = rows[k] | static_cast<uint32_t>(high[k / 8] >> (k % 8) & 1) << 8;
    const float scale = d * static_cast<float>(1 + 2 * nibble(scales[k / 16], k / 8 % 2));
    write_signed(kIq3sGrid[row], static_cast<uint32_t>(signs[k / 2]) >> (k % 2 * 4), scale, dst + 4 * k);
  }
}

void decode_iq1_s(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  const uint8_t* rows = src + 2;  // low 8 bits
  for (int g = 0; g < 8; ++g) {   // 32 elements: 4 × 3 high row bits, scale, sign of delta
    const auto bits = load<uint16_t>(src + 34 + 2 * g);
    const float scale = d * static_cast<float>(2 * (bits >> 12 & 7) + 1);
    const float delta = (bits & 0x8000U) != 0 ? -kIq1Delta : kIq1Delta;
    for (int k = 0; k < 4; ++k) {
      const uint32_t row = rows[4 * g + k] | static_cast<uint32_t>(bits >> (3 * k) & 7) << 8;
      write_iq1(row, delta, scale, dst + 32 * g + 8 * k);
    }
  }
}

void decode_iq1_m(const uint8_t* src, float* dst) {
  const uint8_t* rows = src;         // low 8 bits
  const uint8_t* high = src + 32;    // a nibble for 8 elements: 3 high row bits, sign of delta
  const uint8_t* scales = src + 48;  // 4 × u16: four 3-bit scales each; their top nibbles are the block's f16 scale
  uint16_t d_bits = 0;
  for (int s = 0; s < 4; ++s) {
    d_bits = static_cast<uint16_t>(d_bits | (load<uint16_t>(scales + 2 * s) >> 12) << (4 * s));
  }
  const float d = f16_to_f32(d_bits);
  for (int k = 0; k < 32; ++k) {
    const int bits = nibble(high[k / 2], k % 2);
    const int scale_code = load<uint16_t>(scales + k / 8 * 2) >> (k / 2 % 4 * 3) & 7;
    const float delta = (bits & 8) != 0 ? -kIq1Delta : kIq1Delta;
    const uint32_t row = rows[k] | static_cast<uint32_t>(bits & 7) << 8;
    write_iq1(row, delta, d * static_cast<float>(2 * scale_code + 1), dst + 8 * k);
  }
}

void decode_iq4_nl(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  for (int i = 0; i < 32; ++i) {
    dst[i] = d * static_cast<float>(kIq4Values[static_cast<size_t>(nibble(src[2 + i % 16], i / 16))]);
  }
}

void decode_iq4_xs(const uint8_t* src, float* dst) {
  const float d = load_f16(src);
  const auto high = load<uint16_t>(src + 2);
  const uint8_t* low = src + 4;
  for (int g = 0; g < 8; ++g) {
    const int scale_code = nibble(low[g / 2], g % 2) | (high >> (2 * g) & 3) << 4;
    const float scale = d * static_cast<float>(scale_code - 32);
    const uint8_t* q = src + 8 + 16 * g;
    for (int i = 0; i < 32; ++i) {
      dst[32 * g + i] = scale * static_cast<float>(kIq4Values[static_cast<size_t>(nibble(q[i % 16], i / 16))]);
    }
  }
}

}  // namespace tessera

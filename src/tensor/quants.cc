#include "tensor/quants.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "tensor/quants_internal.h"

namespace tessera {
namespace {

using DecodeRow = void (*)(const uint8_t* src, float* dst, int64_t n);
using EncodeRow = void (*)(const float* src, uint8_t* dst, int64_t n);

struct Codec {
  DecodeRow decode = nullptr;
  EncodeRow encode = nullptr;
};

// Rows of plain elements of type T with a conversion per element.
template <typename T, auto to_f32>
void decode_plain(const uint8_t* src, float* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    dst[i] = to_f32(load<T>(src + i * static_cast<int64_t>(sizeof(T))));
  }
}
template <typename T, auto from_f32>
void encode_plain(const float* src, uint8_t* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    store<T>(dst + i * static_cast<int64_t>(sizeof(T)), from_f32(src[i]));
  }
}

template <typename T>
float to_float(T value) {
  return static_cast<float>(value);
}
float same(float value) {
  return value;
}

// Rows of blocks with a function per block.
template <DType dtype, DecodeBlock decode_block>
void decode_blocks(const uint8_t* src, float* dst, int64_t n) {
  const DTypeInfo& info = dtype_info(dtype);
  for (int64_t i = 0; i < n; i += info.block_elems, src += info.block_bytes) {
    decode_block(src, dst + i);
  }
}
template <DType dtype, EncodeBlock encode_block>
void encode_blocks(const float* src, uint8_t* dst, int64_t n) {
  const DTypeInfo& info = dtype_info(dtype);
  for (int64_t i = 0; i < n; i += info.block_elems, dst += info.block_bytes) {
    encode_block(src + i, dst);
  }
}

constexpr size_t kTableSize = static_cast<size_t>(DType::kQ2_0) + 1;

constexpr auto kCodecs = [] {
  std::array<Codec, kTableSize> table{};
  const auto row = [&](DType dtype, DecodeRow decode, EncodeRow encode = nullptr) {
    table[static_cast<size_t>(dtype)] = {decode, encode};
  };
  row(DType::kF32, decode_plain<float, same>, encode_plain<float, same>);
  row(DType::kF16, decode_plain<uint16_t, f16_to_f32>, encode_plain<uint16_t, f32_to_f16>);
  row(DType::kBF16, decode_plain<uint16_t, bf16_to_f32>, encode_plain<uint16_t, f32_to_bf16>);
  row(DType::kF64, decode_plain<double, to_float<double>>);
  row(DType::kI8, decode_plain<int8_t, to_float<int8_t>>);
  row(DType::kI16, decode_plain<int16_t, to_float<int16_t>>);
  row(DType::kI32, decode_plain<int32_t, to_float<int32_t>>);
  row(DType::kI64, decode_plain<int64_t, to_float<int64_t>>);
  row(DType::kQ4_0, decode_blocks<DType::kQ4_0, decode_q4_0>, encode_blocks<DType::kQ4_0, encode_q4_0>);
  row(DType::kQ4_1, decode_blocks<DType::kQ4_1, decode_q4_1>, encode_blocks<DType::kQ4_1, encode_q4_1>);
  row(DType::kQ5_0, decode_blocks<DType::kQ5_0, decode_q5_0>, encode_blocks<DType::kQ5_0, encode_q5_0>);
  row(DType::kQ5_1, decode_blocks<DType::kQ5_1, decode_q5_1>, encode_blocks<DType::kQ5_1, encode_q5_1>);
  row(DType::kQ8_0, decode_blocks<DType::kQ8_0, decode_q8_0>, encode_blocks<DType::kQ8_0, encode_q8_0>);
  row(DType::kQ8_1, decode_blocks<DType::kQ8_1, decode_q8_1>, encode_blocks<DType::kQ8_1, encode_q8_1>);
  row(DType::kQ2_K, decode_blocks<DType::kQ2_K, decode_q2_k>);
  row(DType::kQ3_K, decode_blocks<DType::kQ3_K, decode_q3_k>);
  row(DType::kQ4_K, decode_blocks<DType::kQ4_K, decode_q4_k>, encode_blocks<DType::kQ4_K, encode_q4_k>);
  row(DType::kQ5_K, decode_blocks<DType::kQ5_K, decode_q5_k>);
  row(DType::kQ6_K, decode_blocks<DType::kQ6_K, decode_q6_k>, encode_blocks<DType::kQ6_K, encode_q6_k>);
  row(DType::kQ8_K, decode_blocks<DType::kQ8_K, decode_q8_k>);
  row(DType::kIQ2_XXS, decode_blocks<DType::kIQ2_XXS, decode_iq2_xxs>);
  row(DType::kIQ2_XS, decode_blocks<DType::kIQ2_XS, decode_iq2_xs>);
  row(DType::kIQ2_S, decode_blocks<DType::kIQ2_S, decode_iq2_s>);
  row(DType::kIQ3_XXS, decode_blocks<DType::kIQ3_XXS, decode_iq3_xxs>);
  row(DType::kIQ3_S, decode_blocks<DType::kIQ3_S, decode_iq3_s>);
  row(DType::kIQ1_S, decode_blocks<DType::kIQ1_S, decode_iq1_s>);
  row(DType::kIQ1_M, decode_blocks<DType::kIQ1_M, decode_iq1_m>);
  row(DType::kIQ4_NL, decode_blocks<DType::kIQ4_NL, decode_iq4_nl>);
  row(DType::kIQ4_XS, decode_blocks<DType::kIQ4_XS, decode_iq4_xs>);
  row(DType::kTQ1_0, decode_blocks<DType::kTQ1_0, decode_tq1_0>);
  row(DType::kTQ2_0, decode_blocks<DType::kTQ2_0, decode_tq2_0>);
  row(DType::kMXFP4, decode_blocks<DType::kMXFP4, decode_mxfp4>);
  row(DType::kNVFP4, decode_blocks<DType::kNVFP4, decode_nvfp4>);
  row(DType::kQ1_0, decode_blocks<DType::kQ1_0, decode_q1_0>);
  row(DType::kQ2_0, decode_blocks<DType::kQ2_0, decode_q2_0>);
  return table;
}();

const Codec& codec(DType dtype) {
  return kCodecs[static_cast<size_t>(dtype)];
}

}  // namespace

void dequantize_row(DType dtype, const void* src, float* dst, int64_t n) {
  CHECK(n >= 0 && n % dtype_info(dtype).block_elems == 0);
  codec(dtype).decode(static_cast<const uint8_t*>(src), dst, n);
}

bool can_quantize(DType dtype) {
  return codec(dtype).encode != nullptr;
}

void quantize_row(DType dtype, const float* src, void* dst, int64_t n) {
  CHECK(can_quantize(dtype) && n >= 0 && n % dtype_info(dtype).block_elems == 0);
  codec(dtype).encode(src, static_cast<uint8_t*>(dst), n);
}

}  // namespace tessera

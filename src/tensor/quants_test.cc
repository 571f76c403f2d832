#include "tensor/quants.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "tensor/half.h"
#include "tensor/iq_grids.h"

namespace tessera {
namespace {

std::vector<uint8_t> from_base64(const std::string& text) {
  std::vector<uint8_t> out;
  uint32_t bits = 0;
  int n_bits = 0;
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (const char c : text) {
    const auto digit = letters.find(c);
    if (digit == std::string::npos) {
      break;  // padding
    }
    bits = bits << 6 | static_cast<uint32_t>(digit);
    n_bits += 6;
    if (n_bits >= 8) {
      n_bits -= 8;
      out.push_back(static_cast<uint8_t>(bits >> n_bits));
    }
  }
  return out;
}

// Bit-equal, or both NaN.
bool same_value(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

// Blocks of every type, decoded by the reference engine (tests/data/goldens/FORMAT.md, dequant-golden-1).
TEST(Quants, EveryTypeDecodesBitForBitAsTheReference) {
  std::ifstream in(TESSERA_TEST_DATA "/goldens/dequant/dequant.json");
  ASSERT_TRUE(in);
  const auto goldens = nlohmann::json::parse(in);
  std::set<DType> seen;
  for (const auto& golden : goldens["types"]) {
    const auto dtype = dtype_from_gguf(golden["id"].get<int>());
    ASSERT_TRUE(dtype) << golden["type"];
    SCOPED_TRACE(golden["type"].get<std::string>());
    seen.insert(*dtype);
    EXPECT_EQ(dtype_info(*dtype).block_elems, golden["block"].get<uint32_t>());
    EXPECT_EQ(dtype_info(*dtype).block_bytes, golden["block_bytes"].get<uint32_t>());
    const auto bytes = from_base64(golden["bytes"]);
    const auto raw = from_base64(golden["f32"]);
    const size_t n = golden["values"];
    ASSERT_EQ(raw.size(), n * sizeof(float));
    ASSERT_EQ(bytes.size(), row_bytes(*dtype, n));
    std::vector<float> wanted(n);
    std::memcpy(wanted.data(), raw.data(), raw.size());
    // One byte off alignment: rows of 18- or 34-byte blocks lie anywhere in a file.
    std::vector<uint8_t> shifted(bytes.size() + 1);
    std::ranges::copy(bytes, shifted.begin() + 1);
    std::vector<float> found(n);
    dequantize_row(*dtype, shifted.data() + 1, found.data(), static_cast<int64_t>(n));
    size_t n_wrong = 0;
    for (size_t i = 0; i < n; ++i) {
      if (!same_value(found[i], wanted[i]) && n_wrong++ < 3) {
        ADD_FAILURE() << "element " << i << ": " << found[i] << ", reference " << wanted[i];
      }
    }
    EXPECT_EQ(n_wrong, 0U) << "of " << n;
  }
  for (const DTypeInfo& info : dtype_table()) {
    const bool plain = info.block_elems == 1;
    const bool internal = info.dtype == DType::kQ8_1 || info.dtype == DType::kQ8_K;
    EXPECT_TRUE(plain || internal || seen.contains(info.dtype)) << info.name << " has no golden";
  }
}

template <typename T>
void expect_plain(DType dtype, const std::vector<T>& values) {
  std::vector<float> found(values.size());
  dequantize_row(dtype, values.data(), found.data(), static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(found[i], static_cast<float>(values[i])) << dtype_name(dtype) << " element " << i;
  }
}

TEST(Quants, PlainTypesAreConverted) {
  expect_plain<float>(DType::kF32, {0.0F, -1.5F, 3e38F});
  expect_plain<double>(DType::kF64, {0.1, -1e300, 2.5});
  expect_plain<int8_t>(DType::kI8, {-128, 0, 127});
  expect_plain<int16_t>(DType::kI16, {-32768, 1, 32767});
  expect_plain<int32_t>(DType::kI32, {INT32_MIN, 16777217, INT32_MAX});
  expect_plain<int64_t>(DType::kI64, {INT64_MIN, 5, INT64_MAX});
}

TEST(Quants, InternalBlocksAreScaledBytes) {
  std::vector<uint8_t> q8_1(36, 0);
  const uint16_t half = f32_to_f16(0.5F);
  std::memcpy(q8_1.data(), &half, 2);
  q8_1[2] = 0xFF;  // the sum must not matter
  q8_1[4] = static_cast<uint8_t>(-128);
  q8_1[35] = 127;
  std::vector<float> found(256);
  dequantize_row(DType::kQ8_1, q8_1.data(), found.data(), 32);
  EXPECT_EQ(found[0], -64.0F);
  EXPECT_EQ(found[1], 0.0F);
  EXPECT_EQ(found[31], 63.5F);

  std::vector<uint8_t> q8_k(292, 0);
  const float quarter = 0.25F;
  std::memcpy(q8_k.data(), &quarter, 4);
  q8_k[4] = static_cast<uint8_t>(-4);
  q8_k[259] = 8;
  q8_k[260] = 99;  // the first of the sums
  dequantize_row(DType::kQ8_K, q8_k.data(), found.data(), 256);
  EXPECT_EQ(found[0], -1.0F);
  EXPECT_EQ(found[255], 2.0F);
}

TEST(Quants, AnEmptyRowReadsAndWritesNothing) {
  for (const DTypeInfo& info : dtype_table()) {
    dequantize_row(info.dtype, nullptr, nullptr, 0);
    if (can_quantize(info.dtype)) {
      quantize_row(info.dtype, nullptr, nullptr, 0);
    }
  }
}

// Largest error as a share of the largest magnitude (of the range, for types with a minimum) that each encoder may
// make: half a step, and for the K formats what their small scales add. Plain floats: half a unit in the last place.
struct EncodeCase {
  DType dtype;
  float bound;
};
class QuantsEncode : public testing::TestWithParam<EncodeCase> {};

TEST_P(QuantsEncode, StaysWithinHalfAStepOfWhatWasWritten) {
  const auto [dtype, bound] = GetParam();
  constexpr int kBlocks = 8;
  constexpr int kN = 256 * kBlocks;
  std::mt19937 random(7);  // fixed seed: the same rows everywhere
  for (int kind = 0; kind < 4; ++kind) {
    SCOPED_TRACE(kind);
    std::vector<float> values(kN);
    for (float& v : values) {
      const float u = static_cast<float>(random()) / 4294967296.0F;
      v = kind == 0   ? u - 0.5F
          : kind == 1 ? u * 3.0F
          : kind == 2 ? -u * 1e-3F
                      : (random() % 50 == 0 ? u * 20.0F : u - 0.5F);
    }
    std::vector<uint8_t> bytes(row_bytes(dtype, kN) + 1, 0xA5);
    quantize_row(dtype, values.data(), bytes.data(), kN);
    EXPECT_EQ(bytes.back(), 0xA5);
    std::vector<float> decoded(kN);
    dequantize_row(dtype, bytes.data(), decoded.data(), kN);
    const auto block = static_cast<int>(std::max<uint32_t>(dtype_info(dtype).block_elems, 1));
    for (int b = 0; b < kN; b += block) {
      float low = 0.0F;
      float high = 0.0F;
      for (int i = b; i < b + block; ++i) {
        low = std::min(low, values[static_cast<size_t>(i)]);
        high = std::max(high, values[static_cast<size_t>(i)]);
      }
      const float reach = std::max(high, -low);
      for (int i = b; i < b + block; ++i) {
        const auto at = static_cast<size_t>(i);
        // Half the smallest f16 is the least that a plain f16 can lose.
        const float floor = dtype == DType::kF16 ? 0x1p-25F : 0.0F;
        ASSERT_LE(std::abs(decoded[at] - values[at]), bound * reach + floor) << dtype_name(dtype) << " element " << i;
      }
    }
    std::vector<uint8_t> again(row_bytes(dtype, kN));
    quantize_row(dtype, values.data(), again.data(), kN);
    EXPECT_TRUE(std::equal(again.begin(), again.end(), bytes.begin())) << "not deterministic";
  }
}

// Symmetric 4- and 5-bit codes lose up to a whole step at the end of the range opposite to the extreme value. A range
// of an affine block can be twice its reach.
INSTANTIATE_TEST_SUITE_P(All, QuantsEncode,
                         testing::Values(EncodeCase{DType::kF32, 0.0F}, EncodeCase{DType::kF16, 0x1p-11F},
                                         EncodeCase{DType::kBF16, 0x1p-8F}, EncodeCase{DType::kQ8_0, 0.51F / 127},
                                         EncodeCase{DType::kQ8_1, 0.51F / 127}, EncodeCase{DType::kQ4_0, 1.01F / 8},
                                         EncodeCase{DType::kQ4_1, 1.02F / 15}, EncodeCase{DType::kQ5_0, 1.01F / 16},
                                         EncodeCase{DType::kQ5_1, 1.03F / 31}, EncodeCase{DType::kQ4_K, 1.5F / 15},
                                         EncodeCase{DType::kQ6_K, 1.3F / 32}),
                         [](const auto& test) { return std::string(dtype_name(test.param.dtype)); });

TEST(Quants, ConstantAndExtremeBlocksAreKept) {
  std::vector<float> decoded(256);
  for (const DTypeInfo& info : dtype_table()) {
    if (!can_quantize(info.dtype)) {
      continue;
    }
    SCOPED_TRACE(info.name);
    std::vector<uint8_t> bytes(row_bytes(info.dtype, 256));
    for (const float value : {0.0F, 1.0F, -2.0F}) {
      const std::vector<float> values(256, value);
      quantize_row(info.dtype, values.data(), bytes.data(), 256);
      dequantize_row(info.dtype, bytes.data(), decoded.data(), 256);
      for (const float d : decoded) {
        ASSERT_NEAR(d, value, std::abs(value) * 0.002F);
      }
    }
    // Defined whatever comes in: nothing to compare, the sanitizers watch.
    std::vector<float> odd(256, 0.0F);
    odd[0] = std::numeric_limits<float>::quiet_NaN();
    odd[1] = std::numeric_limits<float>::infinity();
    odd[2] = -3e38F;
    odd[100] = 1e-45F;
    quantize_row(info.dtype, odd.data(), bytes.data(), 256);
    dequantize_row(info.dtype, bytes.data(), decoded.data(), 256);
  }
}

// A cache of a quantised type must not make a broken activation look sound.
TEST(Quants, ABlockWithNaNDecodesToNaN) {
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0}) {
    for (const size_t at : {0U, 17U, 31U}) {
      std::vector<float> values(64, 0.5F);
      values[at] = std::numeric_limits<float>::quiet_NaN();
      std::vector<uint8_t> bytes(row_bytes(dtype, 64));
      quantize_row(dtype, values.data(), bytes.data(), 64);
      std::vector<float> decoded(64);
      dequantize_row(dtype, bytes.data(), decoded.data(), 64);
      for (size_t i = 0; i < 64; ++i) {
        EXPECT_EQ(std::isnan(decoded[i]), i < 32) << dtype_name(dtype) << " element " << i << ", NaN at " << at;
      }
    }
  }
}

TEST(Quants, OnlyTheListedTypesCanBeWritten) {
  const std::set<DType> writable = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                                    DType::kQ5_1, DType::kQ8_0, DType::kQ8_1, DType::kQ4_K, DType::kQ6_K};
  for (const DTypeInfo& info : dtype_table()) {
    EXPECT_EQ(can_quantize(info.dtype), writable.contains(info.dtype)) << info.name;
  }
}

TEST(IqGrids, SignsAlwaysHaveAnEvenNumberOfMinuses) {
  for (uint32_t i = 0; i < 128; ++i) {
    EXPECT_EQ(std::popcount(iq_signs(i)) % 2, 0);
    EXPECT_EQ(iq_signs(i) & 127U, i);
  }
}

}  // namespace
}  // namespace tessera

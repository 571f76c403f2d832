#include "tensor/dtype.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/check.h"

namespace tessera {
namespace {

constexpr auto kTable = std::to_array<DTypeInfo>({
    {DType::kF32, "f32", 1, 4},
    {DType::kF16, "f16", 1, 2},
    {DType::kQ4_0, "q4_0", 32, 18},
    {DType::kQ4_1, "q4_1", 32, 20},
    {DType::kQ5_0, "q5_0", 32, 22},
    {DType::kQ5_1, "q5_1", 32, 24},
    {DType::kQ8_0, "q8_0", 32, 34},
    {DType::kQ8_1, "q8_1", 32, 36},
    {DType::kQ2_K, "q2_k", 256, 84},
    {DType::kQ3_K, "q3_k", 256, 110},
    {DType::kQ4_K, "q4_k", 256, 144},
    {DType::kQ5_K, "q5_k", 256, 176},
    {DType::kQ6_K, "q6_k", 256, 210},
    {DType::kQ8_K, "q8_k", 256, 292},
    {DType::kIQ2_XXS, "iq2_xxs", 256, 66},
    {DType::kIQ2_XS, "iq2_xs", 256, 74},
    {DType::kIQ3_XXS, "iq3_xxs", 256, 98},
    {DType::kIQ1_S, "iq1_s", 256, 50},
    {DType::kIQ4_NL, "iq4_nl", 32, 18},
    {DType::kIQ3_S, "iq3_s", 256, 110},
    {DType::kIQ2_S, "iq2_s", 256, 82},
    {DType::kIQ4_XS, "iq4_xs", 256, 136},
    {DType::kI8, "i8", 1, 1},
    {DType::kI16, "i16", 1, 2},
    {DType::kI32, "i32", 1, 4},
    {DType::kI64, "i64", 1, 8},
    {DType::kF64, "f64", 1, 8},
    {DType::kIQ1_M, "iq1_m", 256, 56},
    {DType::kBF16, "bf16", 1, 2},
    {DType::kTQ1_0, "tq1_0", 256, 54},
    {DType::kTQ2_0, "tq2_0", 256, 66},
    {DType::kMXFP4, "mxfp4", 32, 17},
    {DType::kNVFP4, "nvfp4", 64, 36},
    {DType::kQ1_0, "q1_0", 128, 18},
    {DType::kQ2_0, "q2_0", 64, 18},
});

constexpr int kMaxId = 42;

// Position of each id in kTable; -1 for ids that name no type.
constexpr auto kRowOfId = [] {
  std::array<int8_t, kMaxId + 1> rows{};
  rows.fill(-1);
  for (size_t i = 0; i < kTable.size(); ++i) {
    rows[static_cast<size_t>(kTable[i].dtype)] = static_cast<int8_t>(i);
  }
  return rows;
}();

}  // namespace

std::span<const DTypeInfo> dtype_table() {
  return kTable;
}

const DTypeInfo& dtype_info(DType dtype) {
  const int row = kRowOfId[static_cast<size_t>(dtype)];
  CHECK(row >= 0);
  return kTable[static_cast<size_t>(row)];
}

std::optional<DType> dtype_from_gguf(int64_t id) {
  if (id < 0 || id > kMaxId || kRowOfId[static_cast<size_t>(id)] < 0) {
    return std::nullopt;
  }
  return static_cast<DType>(id);
}

std::optional<DType> dtype_from_name(std::string_view name) {
  const auto same = [&](const DTypeInfo& info) {
    return std::ranges::equal(info.name, name,
                              [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
  };
  const auto it = std::ranges::find_if(kTable, same);
  return it == kTable.end() ? std::nullopt : std::optional(it->dtype);
}

}  // namespace tessera

#pragma once
// Element types of tensors, as GGUF numbers them, and how many bytes a row of each takes.
//
// A type is a block of `block_elems` consecutive elements of a row stored in `block_bytes` bytes; plain types have
// blocks of one. A row always holds whole blocks. Source of the numbers: the GGUF specification and
// docs/gguf-facts.md 1.5.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tessera {

enum class DType : uint8_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

/// What a type is called and how it is laid out. One row per type, in `dtype_table()`.
struct DTypeInfo {
  DType dtype;
  std::string_view name;  // as people write it on a command line: "q4_k", "f16"
  uint32_t block_elems;   // elements per block
  uint32_t block_bytes;   // bytes per block
};

/// All types a file may hold, in order of id.
std::span<const DTypeInfo> dtype_table();

/// The row of a type.
const DTypeInfo& dtype_info(DType dtype);
inline std::string_view dtype_name(DType dtype) {
  return dtype_info(dtype).name;
}

/// The type with this GGUF id; nothing for unassigned and removed ids.
std::optional<DType> dtype_from_gguf(int64_t id);

/// The type with this name (case does not matter); nothing when there is none.
std::optional<DType> dtype_from_name(std::string_view name);

/// Bytes of a row of n_elems elements. REQUIRES: n_elems is a multiple of the block.
[[nodiscard]] inline uint64_t row_bytes(DType dtype, uint64_t n_elems) {
  const DTypeInfo& info = dtype_info(dtype);
  return n_elems / info.block_elems * info.block_bytes;
}

}  // namespace tessera

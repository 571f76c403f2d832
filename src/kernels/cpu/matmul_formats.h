#pragma once
// How the fast CPU kernels store quantised weights, and the arithmetic that every instruction set must follow.
//
// LAYOUT. Sixteen rows form a group; columns come in blocks of 32. A line is 64 bytes: for each of the 16 rows, 4 bytes
// that belong to 4 consecutive columns; line j of a block holds columns 4 j .. 4 j + 3. Quants are stored unsigned
// (`offset` added) with the bits of several lines folded into one:
//   4 bits  lines 0-3: low nibbles are lines 0-3, high nibbles lines 4-7
//   5 bits  the same four lines, then a line whose bit j is the fifth bit of line j
//   6 bits  the same four lines, then two lines: bits 2 c, 2 c + 1 of line h are the upper bits of line 4 h + c
//   8 bits  eight lines
// Scales lie before the quants they belong to, one per row in row order (f16 as in GGUF, 6-bit scales as whole bytes):
//   kOffset       two blocks: f16 d [2][16]; quants of both (a lone last block: d [16], 32 zero bytes)
//   kMin          one block: f16 d [16], f16 m [16]
//   kSuperMin     eight blocks: f16 d [16], f16 dmin [16], then per block u8 scale [16], u8 min [16]
//   kSuperHalves  eight blocks: per block i8 scale [16] of its first half, [16] of its second; f16 d [16]; 32 zero
//   bytes
// Every group is a multiple of 64 bytes; a packed panel is its groups in order, the last one padded with zero rows.
// Growth over GGUF: 0 for 32-blocks, 2.8 % for Q4_K, 2.3 % for Q5_K, 1 % for Q6_K.
//
// ARITHMETIC. The result of a row and a token starts at 0; blocks follow in ascending order. x has q, d, m of
// ops/quantize.h. Integer sums are exact; every float operation is one IEEE operation; fma is fused:
//   kOffset       i = sum (w - offset) q;           y = fma(float(i), dw * d, y)
//   kMin          i = sum w q;                      y = fma(float(i), dw * d, y); y = fma(mw, m, y)
//   kSuperMin     the same with dw = dw * scale, mw = -(dmin * min)
//   kSuperHalves  per half of 16: i = sum (w - 32) q; y = fma(float(i), (dw * scale) * d, y)
// Nothing depends on how many tokens, panels, groups or threads there are.

#include <cstdint>

#include "base/checked.h"
#include "tensor/dtype.h"

namespace tessera {

inline constexpr int64_t kGroupRows = 16;
inline constexpr int64_t kLineBytes = 64;
inline constexpr int64_t kBlockLines = 8;

enum class ScaleKind : uint8_t { kOffset, kMin, kSuperMin, kSuperHalves };

struct PackedFormat {
  DType dtype;
  int bits;
  int offset;  // what is added to a quant to store it unsigned; 0 where a minimum does this work
  ScaleKind kind;

  [[nodiscard]] constexpr int64_t quant_bytes() const { return kLineBytes * bits; }  // of a block of a group
  /// Columns must be a multiple of this.
  [[nodiscard]] constexpr int64_t column_grain() const { return super() ? 256 : 32; }
  [[nodiscard]] constexpr bool super() const { return kind == ScaleKind::kSuperMin || kind == ScaleKind::kSuperHalves; }

  /// Blocks that share a head of scales, and the bytes of that head.
  [[nodiscard]] constexpr int64_t unit_blocks() const { return super() ? 8 : kind == ScaleKind::kOffset ? 2 : 1; }
  [[nodiscard]] constexpr int64_t head_bytes() const { return super() ? 320 : 64; }
  [[nodiscard]] constexpr int64_t unit_bytes() const { return head_bytes() + unit_blocks() * quant_bytes(); }

  /// Offsets within a group: the head of block b's unit, and block b's quants.
  [[nodiscard]] constexpr int64_t head_at(int64_t b) const { return b / unit_blocks() * unit_bytes(); }
  [[nodiscard]] constexpr int64_t quants_at(int64_t b) const {
    return head_at(b) + head_bytes() + b % unit_blocks() * quant_bytes();
  }
  [[nodiscard]] constexpr int64_t group_bytes(int64_t n_blocks) const {
    const int64_t rest = n_blocks % unit_blocks();
    return n_blocks / unit_blocks() * unit_bytes() + (rest == 0 ? 0 : head_bytes() + rest * quant_bytes());
  }
};

inline constexpr PackedFormat kPackedFormats[] = {
    {DType::kQ4_0, 4, 8, ScaleKind::kOffset},   {DType::kQ4_1, 4, 0, ScaleKind::kMin},
    {DType::kQ5_0, 5, 16, ScaleKind::kOffset},  {DType::kQ5_1, 5, 0, ScaleKind::kMin},
    {DType::kQ8_0, 8, 128, ScaleKind::kOffset}, {DType::kQ4_K, 4, 0, ScaleKind::kSuperMin},
    {DType::kQ5_K, 5, 0, ScaleKind::kSuperMin}, {DType::kQ6_K, 6, 32, ScaleKind::kSuperHalves},
};

/// The packed format of a dtype; null for dtypes that stay as GGUF stores them.
constexpr const PackedFormat* packed_format(DType dtype) {
  for (const PackedFormat& format : kPackedFormats) {
    if (format.dtype == dtype) {
      return &format;
    }
  }
  return nullptr;
}

}  // namespace tessera

#pragma once
// How the fast CPU kernels store quantised weights, and the arithmetic that every instruction set must follow.
//
// LAYOUT. Sixteen rows form a group; columns come in blocks of 32. A line is 64 bytes: for each of the 16 rows, 4 bytes
// that belong to 4 consecutive columns; line j of a block holds columns 4 j .. 4 j + 3. Codes are stored unsigned with
// the bits of several lines folded into one:
//   1 bit   one line: bit j is line j
//   2 bits  two lines: bits 2 c, 2 c + 1 of line h are line 4 h + c
//   3 bits  the same two lines, then a line whose bit j is the third bit of line j
//   4 bits  lines 0-3: low nibbles are lines 0-3, high nibbles lines 4-7
//   5 bits  the same four lines, then a line whose bit j is the fifth bit of line j
//   6 bits  the same four lines, then two lines: bits 2 c, 2 c + 1 of line h are the upper bits of line 4 h + c
//   8 bits  eight lines
// What a code stands for, the weight w of a product: the code minus `offset`, or CodeMeaning's other rules.
// Scales lie before the codes they belong to, one per row in row order (f16 as in GGUF, 6-bit scales as whole bytes):
//   kOffset       2 * scale_blocks blocks: f16 d [2][16], each for scale_blocks blocks; then their codes (a lone last
//                 half: d [16], 32 zero bytes)
//   kMin          one block: f16 d [16], f16 m [16]
//   kExponents    four blocks: u8 exponent [4][16] (E8M0); fewer at the end: zero bytes
//   kFloatHalves  two blocks: u8 scale [2 blocks][2 halves][16] (UE4M3, with 0 for the code 0x7F that means 0)
//   kSuper        eight blocks: f16 d [16], 32 zero bytes, i8 scale [8][16]
//   kSuperMin     eight blocks: f16 d [16], f16 dmin [16], then per block u8 scale [16], u8 min [16]
//   kSuperHalves  eight blocks: per block i8 scale [16] of its first half, [16] of its second; f16 d [16]; 32 zero
//                 bytes
//   kFolded       the same with 32 - scale (a GGUF code 0 .. 63) as a byte, and -d
//   kFoldedMin    eight blocks: f16 d [16], f16 dmin [16], then per block two halves of u8 [16]: scale, min << 4
//   kCoded        no such lines: of each 256 columns the GGUF blocks' bytes without d, 4 of each row in a line; then of
//                 each 256 columns f16 d [16]; zeros up to 64 bytes
// Every group is a multiple of 64 bytes; a packed panel is its groups in order, the last one padded with zero rows.
// Growth over GGUF: 0 for blocks of 32 and Q2_K, 2.8 % for Q4_K, 2.3 % for Q5_K, 1 % for Q6_K, 5.5 % for Q3_K, 2.9 %
// for IQ4_XS, below 64 bytes a group for coded formats.
//
// ARITHMETIC. The result of a row and a token starts at 0; blocks follow in ascending order. x has q, d, m, m_first of
// ops/quantize.h. Integer sums are exact; every float operation is one IEEE operation; fma is fused. A sum i scaled by
// s, i x s below, is fma(1.5 * 2^23 + i, s, -(1.5 * 2^23 * s)): float(i) * s rounded once, as s has few bits (a sum
// that starts at the bits of 1.5 * 2^23 is that float without a conversion); for kExponents float(i) * s.
//   kOffset, kExponents, kSuper  i = sum w q;  y = fma(i x s, d, y), s = dw, 2^(e - 128), dw * scale
//   kMin          i = sum w q;                 y = fma(i x dw, d, y); y = fma(mw, m, y)
//   kSuperMin     the same with dw = dw * scale, mw = -(dmin * min)
//   kSuperHalves, kFloatHalves  per half of 16: i = sum w q; y = fma(i x s, d, y), s = dw * scale, half's scale
//   kFolded       w = (code - 4) * (32 - scale), i = sum w q over both halves; y = fma(i x -dw, d, y)
//   kFoldedMin    w = code * scale, i as before; y = fma(i x dw, d, y); y = fma(-(dmin * min_second), m, y);
//                 y = fma(dmin * (min_second - min_first), m_first, y)
//   kCoded        as kOffset or kSuperHalves with the weights and scales of matmul_coded.h
// Nothing depends on how many tokens, panels, groups or threads there are.

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

inline constexpr int64_t kGroupRows = 16;
inline constexpr int64_t kLineBytes = 64;
inline constexpr int64_t kBlockLines = 8;

enum class ScaleKind : uint8_t {
  kOffset,
  kMin,
  kExponents,
  kFloatHalves,
  kSuper,
  kSuperMin,
  kSuperHalves,
  kFolded,
  kFoldedMin,
  kCoded
};

/// What a stored code becomes before `offset` is subtracted.
enum class CodeMeaning : uint8_t {
  kItself,
  kTwice,  // 0 or 2
  kIq4,    // an entry of kIq4Values, plus 128
  kFp4,    // an entry of kFp4Values, plus 16
};

/// A coded GGUF block of 256 columns: where its f16 d lies (below 0: nowhere), and the words of 32 bits without it.
struct CodedBlock {
  int64_t d_at, words_at, n_words;

  [[nodiscard]] constexpr int64_t group_bytes() const { return kLineBytes * n_words + (d_at < 0 ? 0 : 2 * kGroupRows); }
};
constexpr CodedBlock coded_block(DType dtype) {
  switch (dtype) {
    case DType::kTQ1_0: return {52, 0, 13};
    case DType::kIQ1_S: return {0, 2, 12};
    case DType::kIQ1_M: return {-1, 0, 14};
    case DType::kIQ2_XXS: return {0, 2, 16};
    case DType::kIQ2_XS: return {0, 2, 18};
    case DType::kIQ2_S: return {0, 2, 20};
    case DType::kIQ3_XXS: return {0, 2, 24};
    case DType::kIQ3_S: return {0, 2, 27};
    default: return {-1, 0, 0};
  }
}

struct PackedFormat {
  DType dtype;
  int bits;    // of a code; 0 for kCoded
  int offset;  // subtracted from codes; 0 where a minimum does this work
  ScaleKind kind;
  CodeMeaning meaning = CodeMeaning::kItself;
  int64_t scale_blocks = 1;  // kOffset: blocks that share a scale

  [[nodiscard]] constexpr int64_t quant_bytes() const { return kLineBytes * bits; }  // of a block of a group
  /// Unsigned weights of a product are below 2^weight_bits.
  [[nodiscard]] constexpr int weight_bits() const {
    if (kind == ScaleKind::kFolded || meaning == CodeMeaning::kIq4) {
      return 8;
    }
    return kind == ScaleKind::kFoldedMin ? 6 : meaning == CodeMeaning::kFp4 ? 5 : bits < 4 ? 4 : bits;
  }

  /// Blocks that share a head of scales, and the bytes of that head.
  [[nodiscard]] constexpr int64_t unit_blocks() const {
    switch (kind) {
      case ScaleKind::kOffset: return 2 * scale_blocks;
      case ScaleKind::kMin: return 1;
      case ScaleKind::kExponents: return 4;
      case ScaleKind::kFloatHalves: return 2;
      default: return 8;
    }
  }
  [[nodiscard]] constexpr int64_t head_bytes() const {
    return unit_blocks() != 8 || kind == ScaleKind::kOffset ? 64 : kind == ScaleKind::kSuper ? 192 : 320;
  }
  [[nodiscard]] constexpr int64_t unit_bytes() const { return head_bytes() + unit_blocks() * quant_bytes(); }

  /// Offsets within a group: the head of block b's unit, and block b's codes. Not for kCoded.
  [[nodiscard]] constexpr int64_t head_at(int64_t b) const { return b / unit_blocks() * unit_bytes(); }
  [[nodiscard]] constexpr int64_t quants_at(int64_t b) const {
    return head_at(b) + head_bytes() + b % unit_blocks() * quant_bytes();
  }
  /// Of so many blocks. Not inline: files for one instruction set may share no code.
  [[nodiscard]] int64_t group_bytes(int64_t n_blocks) const;
};

inline constexpr PackedFormat kPackedFormats[] = {
    {DType::kQ4_0, 4, 8, ScaleKind::kOffset},
    {DType::kQ4_1, 4, 0, ScaleKind::kMin},
    {DType::kQ5_0, 5, 16, ScaleKind::kOffset},
    {DType::kQ5_1, 5, 0, ScaleKind::kMin},
    {DType::kQ8_0, 8, 128, ScaleKind::kOffset},
    {DType::kQ2_K, 2, 0, ScaleKind::kFoldedMin},
    {DType::kQ3_K, 3, 128, ScaleKind::kFolded},
    {DType::kQ4_K, 4, 0, ScaleKind::kSuperMin},
    {DType::kQ5_K, 5, 0, ScaleKind::kSuperMin},
    {DType::kQ6_K, 6, 32, ScaleKind::kSuperHalves},
    {DType::kIQ4_NL, 4, 128, ScaleKind::kOffset, CodeMeaning::kIq4},
    {DType::kIQ4_XS, 4, 128, ScaleKind::kSuper, CodeMeaning::kIq4},
    {DType::kMXFP4, 4, 16, ScaleKind::kExponents, CodeMeaning::kFp4},
    {DType::kNVFP4, 4, 16, ScaleKind::kFloatHalves, CodeMeaning::kFp4},
    {DType::kQ1_0, 1, 1, ScaleKind::kOffset, CodeMeaning::kTwice, 4},
    {DType::kQ2_0, 2, 1, ScaleKind::kOffset, CodeMeaning::kItself, 2},
    {DType::kTQ2_0, 2, 1, ScaleKind::kOffset, CodeMeaning::kItself, 8},
    {DType::kTQ1_0, 0, 0, ScaleKind::kCoded},
    {DType::kIQ1_S, 0, 0, ScaleKind::kCoded},
    {DType::kIQ1_M, 0, 0, ScaleKind::kCoded},
    {DType::kIQ2_XXS, 0, 0, ScaleKind::kCoded},
    {DType::kIQ2_XS, 0, 0, ScaleKind::kCoded},
    {DType::kIQ2_S, 0, 0, ScaleKind::kCoded},
    {DType::kIQ3_XXS, 0, 0, ScaleKind::kCoded},
    {DType::kIQ3_S, 0, 0, ScaleKind::kCoded},
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

#pragma once
// quantize: activations to 8 bits in blocks of 32, as the integer products read them.
//
// For a block x[0..32): scale d = max|x| / 127, q[i] = round-half-even(x[i] * (1 / d)), and the sums of q that undo an
// offset or a minimum of the weights. A block whose scale would not be a normal float becomes zeros. A block that holds
// a NaN or an infinity becomes zeros with d = m = NaN, so that its products are NaN.
// A row is stored as: int8 q [columns], then Q8Scale [columns / 32], padded to 64 bytes; rows follow each other at
// q8_row_bytes(columns). A slice of columns that starts at a multiple of 32 is read in place. columns is a multiple of
// 32; weights with other columns (plain float types) do not use this op. Bytes: rows * (columns * 4 + q8_row_bytes).

#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "tensor/cut_rule.h"

namespace tessera {

inline constexpr int64_t kQ8Block = kActivationBlock;  // so that a cut never divides one

/// The bits of the float 1.5 * 2^23. An integer below 2^22 in magnitude, added to these bits, makes the float
/// 1.5 * 2^23 plus that integer: sums that start here need no conversion to float.
inline constexpr int32_t kSumStart = 0x4B400000;
inline constexpr float kSumStartValue = 12582912.0F;

/// What belongs to one block of 32 quantised activations.
struct Q8Scale {
  float d = 0;                   // x[i] is about d * q[i]
  float m = 0;                   // d * (sum of q): what a weight's minimum is multiplied with
  float m_first = 0;             // d * (sum of q[0..16)): the same for weights with minima of 16
  int32_t c = kSumStart;         // kSumStart - 128 * (sum of q): undoes weights stored with 128 added
  int32_t c_first = kSumStart;   // kSumStart - 128 * (sum of q[0..16)): the same for weights with scales of 16
  int32_t c_second = kSumStart;  // kSumStart - 128 * (sum of q[16..32))
};

struct QuantizeArgs {
  const float* x = nullptr;  // [n_rows, x_stride] f32
  int64_t x_stride = 0;
  int64_t columns = 0;  // multiple of 32
  void* q8 = nullptr;   // [n_rows, q8_row_bytes(columns)] bytes, 64-byte aligned
  bool per_output = false;
};

/// Bytes of one quantised row.
[[nodiscard]] inline int64_t q8_row_bytes(int64_t columns) {
  const int64_t scale_bytes = columns / kQ8Block * static_cast<int64_t>(sizeof(Q8Scale));
  return static_cast<int64_t>(round_up(static_cast<uint64_t>(columns + scale_bytes), 64));
}

/// Where the scales of a quantised row start.
[[nodiscard]] inline const Q8Scale* q8_scales(const void* row, int64_t columns) {
  return reinterpret_cast<const Q8Scale*>(static_cast<const std::byte*>(row) + columns);
}

}  // namespace tessera

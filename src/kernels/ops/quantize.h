#pragma once
// quantize: activations to 8 bits in blocks of 32, as the integer products read them.
//
// For block b of a row: scale d = max|x| / 127 (0 for a zero block), q[i] = round-half-even(x[i] * (1 / d)), s = sum of
// q[i]. A row is stored as: int8 q [columns], then f32 d [columns / 32], then i32 s [columns / 32], padded to 64 bytes.
// Rows follow each other at q8_row_bytes(columns). columns is a multiple of 32; rows of weights that are not (plain
// float types) do not use this op. Bytes: rows * (columns * 4 + q8_row_bytes).

#include <cstdint>

#include "base/checked.h"

namespace tessera {

struct QuantizeArgs {
  const float* x = nullptr;  // [n_rows, x_stride] f32
  int64_t x_stride = 0;
  int64_t columns = 0;       // multiple of 32
  void* q8 = nullptr;        // [n_rows, q8_row_bytes(columns)] bytes, 64-byte aligned
  bool per_output = false;
};

/// Bytes of one quantised row.
[[nodiscard]] inline int64_t q8_row_bytes(int64_t columns) {
  return static_cast<int64_t>(round_up(static_cast<uint64_t>(columns + columns / 32 * 8), 64));
}

}  // namespace tessera

#pragma once
// matmul: products of one activation matrix with a list of weight panels, one launch for all of them.
//
// For every panel p, row t and weight row r:  y_p[t, r] = sum over k of w_p[r, k] * x[t, column_begin_p + k].
// A column-parallel weight gives one panel per cut with all columns; a row-parallel one gives one panel per cut with
// all rows and that cut's columns, each writing its own partial. Panels of several weights with the same input (q, k,
// v; gate, up) share a launch. The sum over k runs in an order that depends on the panel's dtype and columns alone:
// never on n_tokens, on the other panels or on the number of threads. Bytes: the packed panels once, activations and
// results once. Operations: 2 * n_tokens * sum of rows * columns.

#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace tessera {

struct MatmulPanel {
  DType dtype = DType::kF32;
  const void* weights = nullptr;  // [rows, columns] packed as the class's WeightLayout says, 64-byte aligned
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t column_begin = 0;  // first activation column; a multiple of 32 for quantised input
  float* y = nullptr;        // [n_rows, y_stride] f32: results at y[t * y_stride + r], r < rows
  int64_t y_stride = 0;
};

struct MatmulArgs {
  const float* x = nullptr;  // [n_rows, x_stride] f32, for panels whose layout reads float input; else may be null
  int64_t x_stride = 0;
  const void* q8 = nullptr;  // [n_rows, q8_row_bytes(q8_columns)], for panels whose layout reads quantised input
  int64_t q8_columns = 0;
  std::vector<MatmulPanel> panels;
  bool per_output = false;  // rows are outputs instead of tokens
};

}  // namespace tessera

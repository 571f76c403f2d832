#pragma once
// Products of float weights, and of every quantised dtype that has no packed format: decoded to float32 a piece at a
// time. The order of summation is that of kernels/ops/summation.h. Compiled once per instruction set.

#include <algorithm>
#include <cstddef>

#include "base/checked.h"
#include "kernels/cpu/matmul_vec.h"
#include "kernels/ops/matmul.h"
#include "tensor/quants.h"

namespace tessera::TESSERA_ISA {

inline constexpr int64_t kFloatTokens = 64;    // tokens that share decoded rows
inline constexpr int64_t kFloatColumns = 512;  // decoded at once; a multiple of every block size and of 16

/// dst: [n] the n elements at src.
inline void decode_floats(DType dtype, const std::byte* src, float* dst, int64_t n) {
  int64_t done = 0;
  if (dtype == DType::kF16 || dtype == DType::kBF16) {
    const auto* h = reinterpret_cast<const uint16_t*>(src);
    for (; done + 16 <= n; done += 16) {
      __builtin_prefetch(h + done + kFloatColumns);
      store(dst + done, dtype == DType::kF16 ? load_f16(h + done) : load_bf16(h + done));
    }
  }
  dequantize_row(dtype, src + row_bytes(dtype, done), dst + done, n - done);
}

/// lanes[t][r] += w[r] * x[t] over n columns.
template <int kRows, int kTokens>
void float_tile(const float* w, int64_t w_stride, const float* x, int64_t x_stride, int64_t n, F32x16* lanes) {
  F32x16 sum[kTokens][kRows];
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      sum[t][r] = lanes[t * kFloatRows + r];
    }
  }
  const auto step = [&](int64_t k, auto fetch) {
    F32x16 row[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      row[r] = fetch(w + r * w_stride + k);
    }
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      const F32x16 token = fetch(x + t * x_stride + k);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        sum[t][r] = fma(row[r], token, sum[t][r]);
      }
    }
  };
  int64_t k = 0;
  for (; k + 16 <= n; k += 16) {
    step(k, [](const float* p) { return load(p); });
  }
  if (k < n) {
    step(k, [rest = n - k](const float* p) { return load_n(p, rest); });
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      lanes[t * kFloatRows + r] = sum[t][r];
    }
  }
}

template <int kRows>
void float_tokens(const float* w, int64_t w_stride, const float* x, int64_t x_stride, int64_t n, int64_t n_tokens,
                  F32x16* lanes) {
  int64_t t = 0;
  for (; t + kFloatTileTokens <= n_tokens; t += kFloatTileTokens) {
    float_tile<kRows, kFloatTileTokens>(w, w_stride, x + t * x_stride, x_stride, n, lanes + t * kFloatRows);
  }
  for (; t < n_tokens; ++t) {
    float_tile<kRows, 1>(w, w_stride, x + t * x_stride, x_stride, n, lanes + t * kFloatRows);
  }
}

/// Rows [row, row + n_rows), n_rows <= kFloatRows, of a panel of raw rows; n_tokens <= kFloatTokens.
/// x: the first token's first column of this panel. y: the first token's result of row 0.
inline void float_rows(const MatmulPanel& panel, int64_t row, int64_t n_rows, const float* x, int64_t x_stride,
                       int64_t n_tokens, float* y) {
  alignas(64) float decoded[kFloatRows][kFloatColumns];
  F32x16 lanes[kFloatTokens * kFloatRows];         // [n_tokens, kFloatRows]
  constexpr int64_t kSumTokens = 16 / kFloatRows;  // sixteen sums are finished at once
  static_assert(kFloatTokens % kSumTokens == 0);
  std::fill_n(lanes, round_up(static_cast<uint64_t>(n_tokens), kSumTokens) * kFloatRows, zero());
  const auto bytes = static_cast<int64_t>(row_bytes(panel.dtype, panel.columns));
  const auto* base = static_cast<const std::byte*>(panel.weights) + row * bytes;
  const bool plain = panel.dtype == DType::kF32;
  for (int64_t k = 0; k < panel.columns; k += kFloatColumns) {
    const int64_t n = std::min(kFloatColumns, panel.columns - k);
    for (int64_t r = 0; r < n_rows && !plain; ++r) {
      decode_floats(panel.dtype, base + r * bytes + row_bytes(panel.dtype, k), decoded[r], n);
    }
    const float* w = plain ? reinterpret_cast<const float*>(base) + k : decoded[0];
    const int64_t w_stride = plain ? panel.columns : kFloatColumns;
    if (n_rows == kFloatRows) {
      float_tokens<kFloatRows>(w, w_stride, x + k, x_stride, n, n_tokens, lanes);
    } else {
      for (int64_t r = 0; r < n_rows; ++r) {
        float_tokens<1>(w + r * w_stride, w_stride, x + k, x_stride, n, n_tokens, lanes + r);
      }
    }
  }
  for (int64_t t = 0; t < n_tokens; t += kSumTokens) {
    F32x16 some[16];
    std::copy_n(lanes + t * kFloatRows, 16, some);
    float sums[kSumTokens][kFloatRows];
    store(sums[0], sum_each(some));
    for (int64_t i = 0; i < std::min(kSumTokens, n_tokens - t); ++i) {
      std::copy_n(sums[i], n_rows, y + (t + i) * panel.y_stride + row);
    }
  }
}

}  // namespace tessera::TESSERA_ISA

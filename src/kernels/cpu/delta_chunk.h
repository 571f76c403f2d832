#pragma once
// The chunked form of the delta rule (kernels/ops/delta_rule.h). Included by delta_rule_body.h, compiled once per
// instruction set.
//
// With S the state before a chunk, G_t the sum of log_decay up to its token t, and D the rows delta_t:
//   (I + A) D = R,  A[t, s] = strength_t * e^(G_t - G_s) * k'_t.k'_s for s < t,  R_t = strength_t * (v_t - e^G_t S^T
//   k'_t) out_t = e^G_t S^T q'_t + sum over s <= t of P[t, s] D_s,  P[t, s] = e^(G_t - G_s) * q'_t.k'_s S = e^G_n S +
//   sum over s of e^(G_n - G_s) k'_s D_s^T
// D is found by forward substitution. Every element of a sum joins it in ascending order, however many rows are
// computed side by side, so that all instruction sets give equal bits.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/rec_share.h"
#include "kernels/cpu/vec_math.h"
#include "kernels/ops/delta_rule.h"

namespace tessera::TESSERA_ISA {

/// Columns of a state that are computed at once: with k_dim 128 they fill half of a level-1 cache.
inline constexpr int64_t kDeltaColumns = 32;
/// Rows of a product side by side, as many as registers hold.
inline constexpr int kDeltaRows = kAccumulators >= 8 ? 4 : 2;

inline F32x16 dot_lanes(const float* a, const float* b, int64_t n) {
  F32x16 lanes = zero();
  for (int64_t i = 0; i < n; i += 16) {
    lanes = fma(load_n(a + i, n - i), load_n(b + i, n - i), lanes);
  }
  return lanes;
}

/// y = x / max(|x|, eps) * scale, n elements.
inline void normalize_l2(const float* x, float* y, int64_t n, float eps, float scale) {
  const F32x16 factor = splat(scale / std::max(std::sqrt(sum(dot_lanes(x, x, n))), eps));
  for (int64_t i = 0; i < n; i += 16) {
    store_n(y + i, load_n(x + i, n - i) * factor, n - i);
  }
}

/// 32 columns of some rows.
using DeltaRows = F32x16[kDeltaRows][2];

/// sums[r] += a[r, 0 .. n) * b, b [n, kDeltaColumns] at b_row; element (r, i) of a lies at r * a_row + i * a_column.
inline void multiply(const float* a, int64_t a_row, int64_t a_column, const float* b, int64_t b_row, int64_t n,
                     DeltaRows& sums) {
  for (int64_t i = 0; i < n; ++i) {
    const F32x16 low = load(b + i * b_row);
    const F32x16 high = load(b + i * b_row + 16);
    for (int r = 0; r < kDeltaRows; ++r) {
      const F32x16 factor = splat(a[r * a_row + i * a_column]);
      sums[r][0] = fma(factor, low, sums[r][0]);
      sums[r][1] = fma(factor, high, sums[r][1]);
    }
  }
}

/// What one value head's chunk of tokens needs beside the state: normalised q and k, decays, A and P.
class DeltaChunk {
 public:
  /// The n rows of the run from `first` on. REQUIRES: 1 <= n <= kDeltaChunk.
  void prepare(const DeltaRuleArgs& args, const RecRun& run, const DeltaHead& head, int64_t first, int64_t n) {
    k_dim_ = args.format.k_dim;
    n_ = n;
    n_padded_ = (n + kDeltaRows - 1) / kDeltaRows * kDeltaRows;
    std::fill_n(turned_, k_dim_ * kDeltaChunk, 0.0F);
    const float scale = 1.0F / std::sqrt(static_cast<float>(k_dim_));
    float sum_of_logs = 0;
    for (int64_t t = 0; t < n; ++t) {
      const int64_t row = args.rows.rows[run.row_begin + first + t];
      const float* x = args.qkv + row * args.qkv_stride;
      normalize_l2(x + head.q_column, q_ + t * k_dim_, k_dim_, args.eps, scale);
      normalize_l2(x + head.k_column, k_ + t * k_dim_, k_dim_, args.eps, 1);
      for (int64_t i = 0; i < k_dim_; ++i) {
        turned_[i * kDeltaChunk + t] = k_[t * k_dim_ + i];
      }
      sum_of_logs += args.log_decay[row * args.gate_stride + head.out_head];
      logs_[t] = sum_of_logs;
      strength_[t] = args.strength[row * args.gate_stride + head.out_head];
    }
    for (int64_t t = n; t < kDeltaChunk; ++t) {
      logs_[t] = sum_of_logs;
      strength_[t] = 0;
    }
    std::fill(q_ + n * k_dim_, q_ + n_padded_ * k_dim_, 0.0F);
    std::fill(k_ + n * k_dim_, k_ + n_padded_ * k_dim_, 0.0F);
    for (int64_t t = 0; t < kDeltaChunk; t += 16) {
      store(from_start_ + t, exp(load(logs_ + t)));
      store(to_end_ + t, exp(splat(sum_of_logs) - load(logs_ + t)));
    }
    prepare_pairs();
  }

  /// Takes kDeltaColumns columns of the state, block [k_dim, kDeltaColumns], through the chunk. v and out: this block's
  /// columns, of which n_columns exist; rows of v and out by token.
  template <class RowOf>
  void run(float* block, const float* v, int64_t v_stride, float* out, int64_t out_stride, int64_t n_columns,
           RowOf row_of) {
    for (int64_t t = 0; t < n_padded_; t += kDeltaRows) {
      find_deltas(block, v, v_stride, n_columns, t, row_of);
      DeltaRows y = {};
      multiply(q_ + t * k_dim_, k_dim_, 1, block, kDeltaColumns, k_dim_, y);
      for (int r = 0; r < kDeltaRows; ++r) {
        y[r][0] = y[r][0] * splat(from_start_[t + r]);
        y[r][1] = y[r][1] * splat(from_start_[t + r]);
      }
      multiply(p_ + t * kDeltaChunk, kDeltaChunk, 1, deltas_, kDeltaColumns, t, y);
      for (int r = 0; r < kDeltaRows && t + r < n_; ++r) {
        for (int64_t s = t; s <= t + r; ++s) {
          add_delta(p_[(t + r) * kDeltaChunk + s], s, y[r]);
        }
        float* to = out + row_of(t + r) * out_stride;
        store_n(to, y[r][0], n_columns);
        store_n(to + 16, y[r][1], n_columns - 16);
      }
    }
    update_state(block);
  }

 private:
  void add_delta(float factor, int64_t s, F32x16 (&sum)[2]) const {
    sum[0] = fma(splat(factor), load(deltas_ + s * kDeltaColumns), sum[0]);
    sum[1] = fma(splat(factor), load(deltas_ + s * kDeltaColumns + 16), sum[1]);
  }

  // A (negated) and P; where they are not defined stands what nothing reads.
  void prepare_pairs() {
    for (int64_t t = 0; t < n_padded_; t += kDeltaRows) {
      for (int64_t s = 0; s < t + kDeltaRows; s += kDeltaColumns) {
        DeltaRows with_k = {};
        DeltaRows with_q = {};
        multiply(k_ + t * k_dim_, k_dim_, 1, turned_ + s, kDeltaChunk, k_dim_, with_k);
        multiply(q_ + t * k_dim_, k_dim_, 1, turned_ + s, kDeltaChunk, k_dim_, with_q);
        for (int r = 0; r < kDeltaRows; ++r) {
          for (int half = 0; half < 2; ++half) {
            const int64_t at = s + 16 * half;
            const F32x16 decay = exp(splat(logs_[t + r]) - load(logs_ + at));
            store(a_ + (t + r) * kDeltaChunk + at, zero() - splat(strength_[t + r]) * (decay * with_k[r][half]));
            store(p_ + (t + r) * kDeltaChunk + at, decay * with_q[r][half]);
          }
        }
      }
    }
  }

  // Rows t .. t + kDeltaRows of D; those before are known.
  template <class RowOf>
  void find_deltas(const float* block, const float* v, int64_t v_stride, int64_t n_columns, int64_t t, RowOf row_of) {
    DeltaRows sums = {};
    multiply(k_ + t * k_dim_, k_dim_, 1, block, kDeltaColumns, k_dim_, sums);
    for (int r = 0; r < kDeltaRows; ++r) {
      const F32x16 strength = splat(strength_[t + r]);
      const F32x16 decay = splat(from_start_[t + r]);
      const float* wanted = t + r < n_ ? v + row_of(t + r) * v_stride : nullptr;
      for (int half = 0; half < 2; ++half) {
        const F32x16 value = wanted == nullptr ? zero() : load_n(wanted + 16 * half, n_columns - 16 * half);
        sums[r][half] = strength * (value - decay * sums[r][half]);
      }
    }
    multiply(a_ + t * kDeltaChunk, kDeltaChunk, 1, deltas_, kDeltaColumns, t, sums);
    for (int r = 0; r < kDeltaRows; ++r) {
      for (int64_t s = t; s < t + r; ++s) {
        add_delta(a_[(t + r) * kDeltaChunk + s], s, sums[r]);
      }
      store(deltas_ + (t + r) * kDeltaColumns, sums[r][0]);
      store(deltas_ + (t + r) * kDeltaColumns + 16, sums[r][1]);
    }
  }

  void update_state(float* block) {
    for (int64_t s = 0; s < n_padded_; ++s) {
      float* delta = deltas_ + s * kDeltaColumns;
      store(delta, load(delta) * splat(to_end_[s]));
      store(delta + 16, load(delta + 16) * splat(to_end_[s]));
    }
    const F32x16 decay = splat(from_start_[n_ - 1]);
    for (int64_t i = 0; i < k_dim_; i += kDeltaRows) {
      // Rows beyond k_dim are other numbers of k_, and are not stored.
      DeltaRows sums;
      for (int r = 0; r < kDeltaRows; ++r) {
        const float* row = block + std::min(i + r, k_dim_ - 1) * kDeltaColumns;
        sums[r][0] = decay * load(row);
        sums[r][1] = decay * load(row + 16);
      }
      multiply(k_ + i, 1, k_dim_, deltas_, kDeltaColumns, n_padded_, sums);
      for (int r = 0; r < kDeltaRows && i + r < k_dim_; ++r) {
        store(block + (i + r) * kDeltaColumns, sums[r][0]);
        store(block + (i + r) * kDeltaColumns + 16, sums[r][1]);
      }
    }
  }

  int64_t k_dim_ = 0;
  int64_t n_ = 0;         // tokens
  int64_t n_padded_ = 0;  // with rows that are zero
  alignas(64) float q_[kDeltaChunk * kDeltaMaxDim + kDeltaRows];
  alignas(64) float k_[kDeltaChunk * kDeltaMaxDim + kDeltaRows];
  alignas(64) float turned_[kDeltaMaxDim * kDeltaChunk];  // [k_dim, kDeltaChunk]: k transposed
  alignas(64) float a_[kDeltaChunk * kDeltaChunk];
  alignas(64) float p_[kDeltaChunk * kDeltaChunk];
  alignas(64) float deltas_[kDeltaChunk * kDeltaColumns];
  alignas(64) float logs_[kDeltaChunk];
  alignas(64) float from_start_[kDeltaChunk];
  alignas(64) float to_end_[kDeltaChunk];
  float strength_[kDeltaChunk];
};

}  // namespace tessera::TESSERA_ISA

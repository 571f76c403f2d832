#pragma once
// delta_rule of the fast set (kernels/ops/delta_rule.h), compiled once per instruction set (see vec.h).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "device/device.h"
#include "kernels/cpu/rec_share.h"
#include "kernels/cpu/vec_math.h"
#include "kernels/ops/delta_rule.h"

namespace tessera::TESSERA_ISA {

/// Columns of a state that one thread takes: with k_dim 128 they fill half of a level-1 cache.
inline constexpr int64_t kDeltaColumns = 32;

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

/// kDeltaColumns columns of one head's state while a run goes by.
class DeltaBlock {
 public:
  DeltaBlock(const RecFormat& format, float* state, int64_t column)
      : k_dim_(format.k_dim),
        v_dim_(format.v_dim),
        n_columns_(std::min(kDeltaColumns, format.v_dim - column)),
        state_(state + column) {}

  void load_state(bool empty) {
    for (int64_t i = 0; i < k_dim_; ++i) {
      const float* row = state_ + i * v_dim_;
      store(block_ + i * kDeltaColumns, empty ? zero() : load_n(row, n_columns_));
      store(block_ + i * kDeltaColumns + 16, empty ? zero() : load_n(row + 16, n_columns_ - 16));
    }
  }
  void store_state() const {
    for (int64_t i = 0; i < k_dim_; ++i) {
      float* row = state_ + i * v_dim_;
      store_n(row, load(block_ + i * kDeltaColumns), n_columns_);
      store_n(row + 16, load(block_ + i * kDeltaColumns + 16), n_columns_ - 16);
    }
  }

  /// One token. q, k: [k_dim], normalised; v, out: this block's columns.
  void step(const float* q, const float* k, float kq, F32x16 decay, float strength, const float* v, float* out) {
    F32x16 seen[2] = {zero(), zero()};    // S^T k
    F32x16 answer[2] = {zero(), zero()};  // S^T q
    for (int64_t i = 0; i < k_dim_; ++i) {
      const F32x16 k_i = splat(k[i]);
      const F32x16 q_i = splat(q[i]);
      for (int half = 0; half < 2; ++half) {
        const F32x16 s = load(block_ + i * kDeltaColumns + 16 * half);
        seen[half] = fma(s, k_i, seen[half]);
        answer[half] = fma(s, q_i, answer[half]);
      }
    }
    F32x16 delta[2];
    for (int half = 0; half < 2; ++half) {
      const int64_t n = n_columns_ - 16 * half;
      delta[half] = (load_n(v + 16 * half, n) - decay * seen[half]) * splat(strength);
      store_n(out + 16 * half, fma(splat(kq), delta[half], decay * answer[half]), n);
    }
    for (int64_t i = 0; i < k_dim_; ++i) {
      const F32x16 k_i = splat(k[i]);
      for (int half = 0; half < 2; ++half) {
        float* s = block_ + i * kDeltaColumns + 16 * half;
        store(s, fma(k_i, delta[half], decay * load(s)));
      }
    }
  }

 private:
  int64_t k_dim_;
  int64_t v_dim_;
  int64_t n_columns_;
  float* state_;
  alignas(64) float block_[kDeltaMaxDim * kDeltaColumns];
};

void delta_rule(void* launch, const void* raw_args, const LaunchSizes& sizes) {  // NOLINT(misc-definitions-in-headers)
  const auto& args = *static_cast<const DeltaRuleArgs*>(raw_args);
  const RecFormat& format = args.format;
  const int64_t n_blocks = (format.v_dim + kDeltaColumns - 1) / kDeltaColumns;
  const float scale = 1.0F / std::sqrt(static_cast<float>(format.k_dim));
  for_each_delta_head(launch, args, sizes, n_blocks, [&](const RecRun& run, const DeltaHead& head, int64_t part) {
    const int64_t column = part * kDeltaColumns;
    DeltaBlock block(format, head.state, column);
    block.load_state(run.position == 0);
    float q[kDeltaMaxDim];
    float k[kDeltaMaxDim];
    for (int64_t i = 0; i < run.n_rows; ++i) {
      const int64_t row = args.rows.rows[run.row_begin + i];
      const float* x = args.qkv + row * args.qkv_stride;
      normalize_l2(x + head.q_column, q, format.k_dim, args.eps, scale);
      normalize_l2(x + head.k_column, k, format.k_dim, args.eps, 1);
      const int64_t gate = row * args.gate_stride + head.out_head;
      block.step(q, k, sum(dot_lanes(k, q, format.k_dim)), exp(splat(args.log_decay[gate])), args.strength[gate],
                 x + head.v_column + column, args.out + row * args.out_stride + head.out_head * format.v_dim + column);
    }
    block.store_state();
  });
}

}  // namespace tessera::TESSERA_ISA

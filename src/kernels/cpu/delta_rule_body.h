#pragma once
// delta_rule of the fast set (kernels/ops/delta_rule.h), compiled once per instruction set (see vec.h).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "device/device.h"
#include "kernels/cpu/delta_chunk.h"
#include "kernels/cpu/rec_share.h"
#include "kernels/cpu/vec_math.h"
#include "kernels/ops/delta_rule.h"

namespace tessera::TESSERA_ISA {

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

  float* data() { return block_; }

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

/// Tokens [first, run.n_rows) of a run, one by one.
inline void delta_steps(const DeltaRuleArgs& args, const RecRun& run, const DeltaHead& head, int64_t first,
                        int64_t column, DeltaBlock& block) {
  const int64_t k_dim = args.format.k_dim;
  const float scale = 1.0F / std::sqrt(static_cast<float>(k_dim));
  float q[kDeltaMaxDim];
  float k[kDeltaMaxDim];
  for (int64_t i = first; i < run.n_rows; ++i) {
    const int64_t row = args.rows.rows[run.row_begin + i];
    const float* x = args.qkv + row * args.qkv_stride;
    normalize_l2(x + head.q_column, q, k_dim, args.eps, scale);
    normalize_l2(x + head.k_column, k, k_dim, args.eps, 1);
    const int64_t gate = row * args.gate_stride + head.out_head;
    block.step(q, k, sum(dot_lanes(k, q, k_dim)), exp(splat(args.log_decay[gate])), args.strength[gate],
               x + head.v_column + column,
               args.out + row * args.out_stride + head.out_head * args.format.v_dim + column);
  }
}

/// The run's tokens [first, first + n) as one chunk, for all columns of the head.
inline void delta_chunk(const DeltaRuleArgs& args, const RecRun& run, const DeltaHead& head, int64_t first, int64_t n) {
  const RecFormat& format = args.format;
  const int32_t* rows = args.rows.rows + run.row_begin + first;
  DeltaChunk chunk;
  chunk.prepare(args, run, head, first, n);
  for (int64_t column = 0; column < format.v_dim; column += kDeltaColumns) {
    DeltaBlock block(format, head.state, column);
    block.load_state(run.position + first == 0);
    chunk.run(block.data(), args.qkv + head.v_column + column, args.qkv_stride,
              args.out + head.out_head * format.v_dim + column, args.out_stride, format.v_dim - column,
              [&](int64_t t) { return static_cast<int64_t>(rows[t]); });
    block.store_state();
  }
}

void delta_rule(void* launch, const void* raw_args, const LaunchSizes& sizes) {  // NOLINT(misc-definitions-in-headers)
  const auto& args = *static_cast<const DeltaRuleArgs*>(raw_args);
  const RecFormat& format = args.format;
  const bool any_chunks = std::any_of(args.rows.runs, args.rows.runs + sizes.n_seqs,
                                      [](const RecRun& run) { return run.n_rows >= kDeltaChunkMin; });
  // What a chunk prepares serves all columns of a head, so that one thread takes them all.
  const int64_t n_blocks = (format.v_dim + kDeltaColumns - 1) / kDeltaColumns;
  const int64_t n_parts = any_chunks ? 1 : n_blocks;
  for_each_delta_head(launch, args, sizes, n_parts, [&](const RecRun& run, const DeltaHead& head, int64_t part) {
    int64_t first = 0;
    while (run.n_rows - first >= kDeltaChunkMin) {
      const int64_t n = std::min<int64_t>(run.n_rows - first, kDeltaChunk);
      delta_chunk(args, run, head, first, n);
      first += n;
    }
    for (int64_t b = part; b < n_blocks && first < run.n_rows; b += n_parts) {
      DeltaBlock block(format, head.state, b * kDeltaColumns);
      block.load_state(run.position + first == 0);
      delta_steps(args, run, head, first, b * kDeltaColumns, block);
      block.store_state();
    }
  });
}

}  // namespace tessera::TESSERA_ISA

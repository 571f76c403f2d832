#pragma once
// attention of the fast set (kernels/ops/attention.h), compiled once per instruction set (see vec.h).
//
// A work item is one KV head and some of its query rows (pairs of token and repetition). Rows of one sequence walk its
// pages together: each page's keys and values become float32 once, whatever their type, and serve all rows. Which rows
// meet in an item changes no bits: every row has its own order of operations, fixed by its position and window:
//   per block of 32 keys: dots in the lane order of summation.h; the 32 exponentials join 16 running sums (lane i takes
//   keys i and i + 16); values join by one fma per key, keys ascending. Ranges merge the same way.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/checked.h"
#include "device/cpu/cpu_launch.h"
#include "device/device.h"
#include "kernels/cpu/attention_page.h"
#include "kernels/cpu/vec_math.h"
#include "kernels/ops/attention.h"

namespace tessera::TESSERA_ISA {

/// Query rows of one work item: scratch stays within the first-level cache for small heads.
inline constexpr int64_t kMaxAttentionRows = 32;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// A softmax in progress: sums are relative to exp(max).
struct SoftmaxState {
  float max = kMinusInfinity;
  float lanes[16] = {};     // sums of exponentials
  float* values = nullptr;  // [v_padded] f32, weighted values
};

struct AttentionRow {
  int64_t token = 0;
  int64_t head = 0;      // query head on this device
  int64_t first = 0;     // first visible position
  int64_t position = 0;  // last visible position
  SoftmaxState range;    // the current range
  SoftmaxState total;    // the ranges before it
  // Visible keys of the current block, empty when begin >= end.
  int64_t begin = 0;
  int64_t end = 0;
};

/// Everything an item works in; on the thread's stack (about 330 KiB).
struct AttentionScratch {
  alignas(64) float q[kMaxAttentionRows * kAttentionMaxDim];             // [rows, k_padded]
  alignas(64) float range_values[kMaxAttentionRows * kAttentionMaxDim];  // [rows, v_padded]
  alignas(64) float total_values[kMaxAttentionRows * kAttentionMaxDim];  // [rows, v_padded]
  alignas(64) float keys[kPageTokens * kAttentionMaxDim];                // [32, k_padded]
  alignas(64) float values[kPageTokens * kAttentionMaxDim];              // [32, v_padded]
  alignas(64) float scores[kMaxAttentionRows * kPageTokens];             // [rows, 32]; after the softmax, weights
  AttentionRow rows[kMaxAttentionRows];
};

inline float exp_of(float x) {
  float lanes[16];
  store(lanes, exp(splat(x)));
  return lanes[0];
}

/// y = y * factor. y: [n] f32, n a multiple of 16.
inline void scale_values(float* y, float factor, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    store(y + i, load(y + i) * splat(factor));
  }
}

/// Scores of kRows rows against the block's keys [begin, end): scores[r * 32 + j] = q_r . k_j. Whole groups of keys are
/// computed; what lies outside the range is masked later. q: [kRows, dim] f32, dim a multiple of 16.
template <int kRows, class Keys>
inline void score_rows(const float* q, const Keys& keys, int64_t dim, int64_t begin, int64_t end, float* scores) {
  constexpr int kKeys = kRows == 3 ? 4 : 16 / kRows;             // one sum_each() serves kRows x kKeys dots
  constexpr int kStep = std::min(kKeys, kAccumulators / kRows);  // keys at once in registers
  for (int64_t key = begin / kKeys * kKeys; key < end; key += kKeys) {
    F32x16 dots[16];
    for (int i = kRows * kKeys; i < 16; ++i) {
      dots[i] = zero();
    }
    for (int step = 0; step < kKeys; step += kStep) {
      F32x16 sums[kRows][kStep];
      for (auto& row : sums) {
        for (F32x16& s : row) {
          s = zero();
        }
      }
      for (int64_t i = 0; i < dim; i += 16) {
        F32x16 x[kRows];
        for (int r = 0; r < kRows; ++r) {
          x[r] = load(q + r * dim + i);
        }
        for (int j = 0; j < kStep; ++j) {
          const F32x16 k = keys.load16(key + step + j, i);
          for (int r = 0; r < kRows; ++r) {
            sums[r][j] = fma(x[r], k, sums[r][j]);
          }
        }
      }
      for (int r = 0; r < kRows; ++r) {
        for (int j = 0; j < kStep; ++j) {
          dots[r * kKeys + step + j] = sums[r][j];
        }
      }
    }
    float out[16];
    store(out, sum_each(dots));
    for (int r = 0; r < kRows; ++r) {
      std::memcpy(scores + r * kPageTokens + key, out + r * kKeys, kKeys * sizeof(float));
    }
  }
}

/// The same for n rows.
template <class Keys>
inline void score_all_rows(const float* q, int64_t n, const Keys& keys, int64_t dim, const CpuShare& visible,
                           float* scores) {
  constexpr auto kTile = [](int64_t rows) {
    return rows >= 4   ? score_rows<4, Keys>
           : rows == 3 ? score_rows<3, Keys>
           : rows == 2 ? score_rows<2, Keys>
                       : score_rows<1, Keys>;
  };
  for (int64_t r = 0; r < n; r += 4) {
    kTile(n - r)(q + r * dim, keys, dim, visible.begin, visible.end, scores + r * kPageTokens);
  }
}

/// Scales and masks a row's scores of a block; returns the largest.
inline float mask_scores(const AttentionArgs& args, const AttentionRow& row, float* scores) {
  F32x16 s0 = load(scores) * splat(args.scale);
  F32x16 s1 = load(scores + 16) * splat(args.scale);
  if (args.softcap > 0) {
    s0 = softcap(s0, args.softcap);
    s1 = softcap(s1, args.softcap);
  }
  if (row.begin > 0 || row.end < kPageTokens) {
    s0 = select_range(s0, splat(kMinusInfinity), row.begin, row.end);
    s1 = select_range(s1, splat(kMinusInfinity), row.begin - 16, row.end - 16);
  }
  store(scores, s0);
  store(scores + 16, s1);
  return max_lane(max(s0, s1));
}

/// Turns the scores of n rows, n <= 16, into weights and moves their ranges on. Keys that a row does not see get
/// weight 0.
inline void softmax_rows(const AttentionArgs& args, AttentionRow* rows, int64_t n, float* scores, int64_t v_padded) {
  float new_max[16];
  float decay[16] = {};
  for (int64_t r = 0; r < n; ++r) {
    const float block_max = mask_scores(args, rows[r], scores + r * kPageTokens);
    const float old_max = rows[r].range.max;
    new_max[r] = old_max > block_max ? old_max : block_max;
    decay[r] = old_max - new_max[r];
    rows[r].range.max = new_max[r];
  }
  store(decay, exp_down(load(decay)));
  for (int64_t r = 0; r < n; ++r) {
    float* s = scores + r * kPageTokens;
    const F32x16 w0 = exp_down(load(s) - splat(new_max[r]));
    const F32x16 w1 = exp_down(load(s + 16) - splat(new_max[r]));
    store(s, w0);
    store(s + 16, w1);
    SoftmaxState& range = rows[r].range;
    store(range.lanes, fma(load(range.lanes), splat(decay[r]), w0 + w1));
    if (decay[r] != 1.0F) {  // a factor of exactly 1 changes nothing
      scale_values(range.values, decay[r], v_padded);
    }
  }
}

/// sums[r][c] += weight[r][j] * value[j][c] for keys j in [begin, end) and kColumns vectors of columns from `column`.
template <int kRows, int kColumns, class Values>
inline void add_value_columns(const float* weights, const Values& values, int64_t begin, int64_t end, float* sums,
                              int64_t v_padded, int64_t column) {
  F32x16 total[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      total[r][c] = load(sums + r * v_padded + column + c * 16);
    }
  }
  for (int64_t j = begin; j < end; ++j) {
    F32x16 value[kColumns];
    for (int c = 0; c < kColumns; ++c) {
      value[c] = values.load16(j, column + c * 16);
    }
    for (int r = 0; r < kRows; ++r) {
      const F32x16 weight = splat(weights[r * kPageTokens + j]);
      for (int c = 0; c < kColumns; ++c) {
        total[r][c] = fma(weight, value[c], total[r][c]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      store(sums + r * v_padded + column + c * 16, total[r][c]);
    }
  }
}

/// The same over all columns from `column`, as many at once as registers hold.
template <int kRows, class Values, int kColumns = kAccumulators / (kRows == 3 ? 4 : kRows)>
inline void add_values(const float* weights, const Values& values, int64_t begin, int64_t end, float* sums,
                       int64_t v_padded, int64_t column = 0) {
  for (; column + kColumns * 16 <= v_padded; column += kColumns * 16) {
    add_value_columns<kRows, kColumns>(weights, values, begin, end, sums, v_padded, column);
  }
  if constexpr (kColumns > 1) {
    if (column < v_padded) {
      add_values<kRows, Values, kColumns / 2>(weights, values, begin, end, sums, v_padded, column);
    }
  }
}

/// kRows rows at once over the keys that all of them see; the keys before and after row by row, so that each row meets
/// its own keys only, in ascending order.
template <int kRows, class Values>
inline void add_values_of_rows(const AttentionRow* rows, const float* weights, const Values& values, float* sums,
                               int64_t v_padded) {
  int64_t begin = 0;
  int64_t end = kPageTokens;
  for (int r = 0; r < kRows; ++r) {
    begin = std::max(begin, rows[r].begin);
    end = std::min(end, rows[r].end);
  }
  if (begin >= end) {  // nothing in common: the last loop does all
    begin = end = 0;
  }
  for (int r = 0; r < kRows; ++r) {
    if (rows[r].begin < begin) {
      add_values<1>(weights + r * kPageTokens, values, rows[r].begin, begin, sums + r * v_padded, v_padded);
    }
  }
  if (begin < end) {
    add_values<kRows>(weights, values, begin, end, sums, v_padded);
  }
  for (int r = 0; r < kRows; ++r) {
    const int64_t rest = std::max(end, rows[r].begin);
    if (rest < rows[r].end) {
      add_values<1>(weights + r * kPageTokens, values, rest, rows[r].end, sums + r * v_padded, v_padded);
    }
  }
}

/// The same for n rows.
template <class Values>
inline void add_values_of_all(const AttentionRow* rows, int64_t n, const float* weights, const Values& values,
                              float* sums, int64_t v_padded) {
  constexpr auto kTile = [](int64_t left) {
    return left >= 4   ? add_values_of_rows<4, Values>
           : left == 3 ? add_values_of_rows<3, Values>
           : left == 2 ? add_values_of_rows<2, Values>
                       : add_values_of_rows<1, Values>;
  };
  for (int64_t r = 0; r < n; r += 4) {
    kTile(n - r)(rows + r, weights + r * kPageTokens, values, sums + r * v_padded, v_padded);
  }
}

/// Adds a range to the ranges before it, both relative to the larger maximum, and starts the range anew. The first
/// range is taken as it is.
inline void merge_softmax(SoftmaxState& total, SoftmaxState& range, int64_t v_padded) {
  if (total.max == kMinusInfinity) {
    total.max = range.max;
    std::memcpy(total.lanes, range.lanes, sizeof(range.lanes));
    std::memcpy(total.values, range.values, static_cast<size_t>(v_padded) * sizeof(float));
  } else {
    const float new_max = total.max > range.max ? total.max : range.max;
    const F32x16 total_factor = splat(exp_of(total.max - new_max));
    const F32x16 range_factor = splat(exp_of(range.max - new_max));
    const auto merge = [&](float* into, const float* from, int64_t n) {
      for (int64_t i = 0; i < n; i += 16) {
        store(into + i, fma(load(into + i), total_factor, load(from + i) * range_factor));
      }
    };
    total.max = new_max;
    merge(total.lanes, range.lanes, 16);
    merge(total.values, range.values, v_padded);
  }
  range.max = kMinusInfinity;
  store(range.lanes, zero());
  std::memset(range.values, 0, static_cast<size_t>(v_padded) * sizeof(float));
}

/// Ends the current range of every row that has seen keys in it.
inline void merge_ranges(AttentionRow* rows, int64_t n_rows, int64_t v_padded) {
  for (int64_t r = 0; r < n_rows; ++r) {
    if (rows[r].range.max != kMinusInfinity) {
      merge_softmax(rows[r].total, rows[r].range, v_padded);
    }
  }
}

/// One block of keys for rows [row, row + n), all of which see some of it.
inline void attend_block(const AttentionArgs& args, AttentionScratch& scratch, const BlockRows& keys,
                         const BlockRows& values, int64_t row, int64_t n, const CpuShare& visible) {
  const int64_t k_padded = padded_dim(args.format.k_dim);
  const int64_t v_padded = padded_dim(args.format.v_dim);
  AttentionRow* rows = scratch.rows + row;
  const float* q = scratch.q + row * k_padded;
  float* scores = scratch.scores + row * kPageTokens;
  float* sums = scratch.range_values + row * v_padded;
  keys.visit([&](const auto& typed) { score_all_rows(q, n, typed, k_padded, visible, scores); });
  for (int64_t r = 0; r < n; r += 16) {
    softmax_rows(args, rows + r, std::min<int64_t>(16, n - r), scores + r * kPageTokens, v_padded);
  }
  values.visit([&](const auto& typed) { add_values_of_all(rows, n, scores, typed, sums, v_padded); });
}

/// Fills the rows' visible keys of a block and returns their union.
inline CpuShare visible_keys(AttentionRow* rows, int64_t n_rows, int64_t block) {
  CpuShare all{kPageTokens, 0};
  for (int64_t r = 0; r < n_rows; ++r) {
    rows[r].begin = std::max<int64_t>(0, rows[r].first - block * kPageTokens);
    rows[r].end = std::min(kPageTokens, rows[r].position + 1 - block * kPageTokens);
    if (rows[r].begin < rows[r].end) {
      all = {std::min(all.begin, rows[r].begin), std::max(all.end, rows[r].end)};
    }
  }
  return all;
}

/// All blocks of one sequence for n_rows rows of scratch.
inline void attend_sequence(const AttentionArgs& args, const KvPanel& panel, int64_t kv_head, AttentionScratch& scratch,
                            int64_t n_rows) {
  const PageReader reader(args.format, panel, kv_head);
  const int64_t v_padded = padded_dim(args.format.v_dim);
  const int32_t* pages = args.page_table + args.seq_rows[scratch.rows[0].token] * args.page_table_stride;
  int64_t first = scratch.rows[0].first;
  int64_t last = scratch.rows[0].position;
  for (int64_t r = 1; r < n_rows; ++r) {
    first = std::min(first, scratch.rows[r].first);
    last = std::max(last, scratch.rows[r].position);
  }
  constexpr int64_t kRangeBlocks = kAttentionRange / kPageTokens;
  for (int64_t block = first / kPageTokens; block <= last / kPageTokens; ++block) {
    const CpuShare visible = visible_keys(scratch.rows, n_rows, block);
    if (visible.begin < visible.end) {
      const bool once = n_rows <= 4;  // one tile of rows
      const BlockRows keys = reader.keys(pages[block], visible.begin, visible.end, once, scratch.keys);
      const BlockRows values = reader.values(pages[block], visible.begin, visible.end, once, scratch.values);
      for (int64_t r = 0; r < n_rows;) {  // rows that see the block usually lie side by side
        int64_t n = 0;
        while (r + n < n_rows && scratch.rows[r + n].begin < scratch.rows[r + n].end) {
          ++n;
        }
        if (n > 0) {
          attend_block(args, scratch, keys, values, r, n, visible);
        }
        r += n + 1;
      }
    }
    if (block % kRangeBlocks == kRangeBlocks - 1) {
      merge_ranges(scratch.rows, n_rows, v_padded);
    }
  }
  merge_ranges(scratch.rows, n_rows, v_padded);
}

/// Prepares row r of scratch for (token, head).
inline void start_row(const AttentionArgs& args, AttentionScratch& scratch, int64_t r, int64_t token, int64_t head) {
  const int64_t k_padded = padded_dim(args.format.k_dim);
  const int64_t v_padded = padded_dim(args.format.v_dim);
  AttentionRow& row = scratch.rows[r];
  row = {};
  row.token = token;
  row.head = head;
  row.position = args.positions[token];
  row.first = args.window > 0 ? std::max<int64_t>(0, row.position - args.window + 1) : 0;
  row.range.values = scratch.range_values + r * v_padded;
  row.total.values = scratch.total_values + r * v_padded;
  std::memset(row.range.values, 0, static_cast<size_t>(v_padded) * sizeof(float));
  std::memset(row.total.values, 0, static_cast<size_t>(v_padded) * sizeof(float));
  const float* q = args.q + token * args.q_stride + head * args.format.k_dim;
  for (int64_t i = 0; i < k_padded; i += 16) {
    store(scratch.q + r * k_padded + i, load_n(q + i, args.format.k_dim - i));
  }
}

/// Adds the sink's exponential to the denominator and writes the row's result.
inline void finish_row(const AttentionArgs& args, const AttentionRow& row) {
  float max = row.total.max;
  float factor = 1;
  float denominator = sum(load(row.total.lanes));
  if (args.sinks != nullptr) {
    const float sink = args.sinks[row.head];
    max = max > sink ? max : sink;
    factor = exp_of(row.total.max - max);
    denominator = denominator * factor + exp_of(sink - max);
  }
  const F32x16 inverse = splat(factor / denominator);
  float* out = args.out + row.token * args.out_stride + row.head * args.format.v_dim;
  for (int64_t i = 0; i < args.format.v_dim; i += 16) {
    store_n(out + i, load(row.total.values + i) * inverse, args.format.v_dim - i);
  }
}

/// Query rows [begin, end) of one KV head; row r is token r / n_rep, repetition r % n_rep.
inline void attend_rows(const AttentionArgs& args, const KvPanel& panel, int64_t kv_head, int64_t begin, int64_t end,
                        AttentionScratch& scratch) {
  for (int64_t r = begin; r < end;) {
    const int32_t sequence = args.seq_rows[r / args.n_rep];
    int64_t n = 0;
    for (; r + n < end && args.seq_rows[(r + n) / args.n_rep] == sequence; ++n) {
      const int64_t head = (panel.kv_head_begin + kv_head) * args.n_rep + (r + n) % args.n_rep;
      start_row(args, scratch, n, (r + n) / args.n_rep, head);
    }
    attend_sequence(args, panel, kv_head, scratch, n);
    for (int64_t i = 0; i < n; ++i) {
      finish_row(args, scratch.rows[i]);
    }
    r += n;
  }
}

// NOLINTNEXTLINE(misc-definitions-in-headers)
void attention(void* launch_ptr, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const AttentionArgs*>(raw_args);
  CHECK(args.format.k_dim <= kAttentionMaxDim && args.format.v_dim <= kAttentionMaxDim);
  const auto& launch = *static_cast<const CpuLaunch*>(launch_ptr);
  int64_t n_kv_heads = 0;
  for (const KvPanel& panel : args.panels) {
    n_kv_heads += panel.n_kv_heads;
  }
  const int64_t n_rows = sizes.n_tokens * args.n_rep;
  if (n_rows == 0 || n_kv_heads == 0) {
    return;
  }
  // As many rows per item as scratch holds, but no fewer items than threads.
  const int64_t fair = std::max<int64_t>(1, n_rows * n_kv_heads / launch.n_threads);
  const int64_t n_blocks = static_cast<int64_t>(
      div_up(static_cast<uint64_t>(n_rows), static_cast<uint64_t>(std::min(fair, kMaxAttentionRows))));
  AttentionScratch scratch;
  // Places that no row sees are read, though never used: they must hold numbers that the program wrote.
  std::memset(scratch.keys, 0, static_cast<size_t>(kPageTokens * padded_dim(args.format.k_dim)) * sizeof(float));
  // Later tokens see more keys, so threads take turns; the heads of one block of rows cost the same.
  for (int64_t item = launch.thread; item < n_blocks * n_kv_heads; item += launch.n_threads) {
    const int64_t block = item / n_kv_heads;
    int64_t kv_head = item % n_kv_heads;
    const KvPanel* panel = args.panels.data();
    for (; kv_head >= panel->n_kv_heads; ++panel) {
      kv_head -= panel->n_kv_heads;
    }
    attend_rows(args, *panel, kv_head, n_rows * block / n_blocks, n_rows * (block + 1) / n_blocks, scratch);
  }
}

}  // namespace tessera::TESSERA_ISA

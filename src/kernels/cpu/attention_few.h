#pragma once
// Attention of few query rows of one KV head and sequence, for attention's kernel body (see vec.h).
//
// A vector holds sixteen dimensions of one row, key or value, so pages are read as they lie; every score is a sum over
// the lanes. Where many rows meet, attention_many.h computes the same bits with less of that.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/cpu/attention_page.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/vec_math.h"
#include "kernels/ops/attention.h"

namespace tessera::TESSERA_ISA {

inline constexpr int64_t kFewRows = 8;

/// A softmax in progress: sums are relative to exp(max).
struct SoftmaxState {
  float max = kMinusInfinity;
  float lanes[16] = {};     // sums of exponentials
  float* values = nullptr;  // [v_padded] f32, weighted values
};

struct FewRow {
  QueryRow row;
  SoftmaxState range;  // the current range
  SoftmaxState total;  // the ranges before it
  CpuShare seen;       // visible keys of the current block
};

/// What few rows work in.
struct FewRows {
  alignas(64) float q[kFewRows * kAttentionMaxDim];             // [rows, k_padded]
  alignas(64) float range_values[kFewRows * kAttentionMaxDim];  // [rows, v_padded]
  alignas(64) float total_values[kFewRows * kAttentionMaxDim];  // [rows, v_padded]
  alignas(64) float scores[kFewRows * kPageTokens];             // [rows, 32]; after the softmax, weights
  FewRow rows[kFewRows];
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
inline float mask_scores(const AttentionArgs& args, const FewRow& row, float* scores) {
  F32x16 s0 = load(scores) * splat(args.scale);
  F32x16 s1 = load(scores + 16) * splat(args.scale);
  if (args.softcap > 0) {
    s0 = softcap(s0, args.softcap);
    s1 = softcap(s1, args.softcap);
  }
  if (row.seen.begin > 0 || row.seen.end < kPageTokens) {
    s0 = select_range(s0, splat(kMinusInfinity), row.seen.begin, row.seen.end);
    s1 = select_range(s1, splat(kMinusInfinity), row.seen.begin - 16, row.seen.end - 16);
  }
  store(scores, s0);
  store(scores + 16, s1);
  return max_lane(max(s0, s1));
}

/// Turns the scores of n <= kFewRows rows into weights and moves their ranges on. Keys that a row does not see get
/// weight 0.
inline void softmax_rows(const AttentionArgs& args, FewRow* rows, int64_t n, float* scores, int64_t v_padded) {
  float new_max[16];
  float decay[16] = {};
  for (int64_t r = 0; r < n; ++r) {
    const float block_max = mask_scores(args, rows[r], scores + r * kPageTokens);
    const float old_max = rows[r].range.max;
    new_max[r] = old_max > block_max ? old_max : block_max;
    if (new_max[r] == kMinusInfinity) {  // it sees keys, none of them with a finite score
      new_max[r] = kNaN;
    }
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
inline void add_values_of_rows(const FewRow* rows, const float* weights, const Values& values, float* sums,
                               int64_t v_padded) {
  int64_t begin = 0;
  int64_t end = kPageTokens;
  for (int r = 0; r < kRows; ++r) {
    begin = std::max(begin, rows[r].seen.begin);
    end = std::min(end, rows[r].seen.end);
  }
  if (begin >= end) {  // nothing in common: the last loop does all
    begin = end = 0;
  }
  for (int r = 0; r < kRows; ++r) {
    if (rows[r].seen.begin < begin) {
      add_values<1>(weights + r * kPageTokens, values, rows[r].seen.begin, begin, sums + r * v_padded, v_padded);
    }
  }
  if (begin < end) {
    add_values<kRows>(weights, values, begin, end, sums, v_padded);
  }
  for (int r = 0; r < kRows; ++r) {
    const int64_t rest = std::max(end, rows[r].seen.begin);
    if (rest < rows[r].seen.end) {
      add_values<1>(weights + r * kPageTokens, values, rest, rows[r].seen.end, sums + r * v_padded, v_padded);
    }
  }
}

/// The same for n rows.
template <class Values>
inline void add_values_of_all(const FewRow* rows, int64_t n, const float* weights, const Values& values, float* sums,
                              int64_t v_padded) {
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
inline void merge_ranges(FewRow* rows, int64_t n_rows, int64_t v_padded) {
  for (int64_t r = 0; r < n_rows; ++r) {
    if (rows[r].range.max != kMinusInfinity) {
      merge_softmax(rows[r].total, rows[r].range, v_padded);
    }
  }
}

/// One block of keys for rows [row, row + n), all of which see some of it.
inline void attend_block(const AttentionArgs& args, FewRows& few, const BlockRows& keys, const BlockRows& values,
                         int64_t row, int64_t n, const CpuShare& seen) {
  const int64_t k_padded = padded_dim(args.format.k_dim);
  const int64_t v_padded = padded_dim(args.format.v_dim);
  FewRow* rows = few.rows + row;
  const float* q = few.q + row * k_padded;
  float* scores = few.scores + row * kPageTokens;
  float* sums = few.range_values + row * v_padded;
  keys.visit([&](const auto& typed) { score_all_rows(q, n, typed, k_padded, seen, scores); });
  softmax_rows(args, rows, n, scores, v_padded);
  values.visit([&](const auto& typed) { add_values_of_all(rows, n, scores, typed, sums, v_padded); });
}

/// Fills what the rows see of a block and returns their union.
inline CpuShare look_at_block(FewRow* rows, int64_t n_rows, int64_t block) {
  CpuShare all = kNoKeys;
  for (int64_t r = 0; r < n_rows; ++r) {
    rows[r].seen = rows[r].row.keys_of(block);
    all = hull(all, rows[r].seen);
  }
  return all;
}

/// Prepares row r for a query row.
inline void start_row(const AttentionArgs& args, FewRows& few, int64_t r, const QueryRow& row) {
  const int64_t k_padded = padded_dim(args.format.k_dim);
  const int64_t v_padded = padded_dim(args.format.v_dim);
  few.rows[r] = {};
  few.rows[r].row = row;
  few.rows[r].range.values = few.range_values + r * v_padded;
  few.rows[r].total.values = few.total_values + r * v_padded;
  std::fill_n(few.rows[r].range.values, v_padded, 0.0F);
  std::fill_n(few.rows[r].total.values, v_padded, 0.0F);
  for (int64_t i = 0; i < k_padded; i += 16) {
    store(few.q + r * k_padded + i, load_n(row.q + i, args.format.k_dim - i));
  }
}

/// Adds the sink's exponential to the denominator and writes the row's result.
inline void finish_row(const AttentionArgs& args, const FewRow& few) {
  float max = few.total.max;
  float factor = 1;
  float denominator = sum(load(few.total.lanes));
  if (args.sinks != nullptr) {
    const float sink = args.sinks[few.row.head];
    max = max > sink ? max : sink;
    factor = exp_of(few.total.max - max);
    denominator = denominator * factor + exp_of(sink - max);
  }
  const F32x16 inverse = splat(factor / denominator);
  for (int64_t i = 0; i < args.format.v_dim; i += 16) {
    store_n(few.row.out + i, load(few.total.values + i) * inverse, args.format.v_dim - i);
  }
}

/// n query rows of one KV head and sequence, n <= kFewRows.
inline void attend_few(const AttentionArgs& args, const PageReader& reader, const int32_t* pages, const QueryRow* rows,
                       int64_t n, FewRows& few, PageScratch& page) {
  const int64_t v_padded = padded_dim(args.format.v_dim);
  for (int64_t r = 0; r < n; ++r) {
    start_row(args, few, r, rows[r]);
  }
  const CpuShare blocks = blocks_of(rows, n);
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    const CpuShare seen = look_at_block(few.rows, n, block);
    if (seen.begin < seen.end) {
      const bool once = n <= 4;  // one tile of rows
      const BlockRows keys = reader.keys(pages[block], seen.begin, seen.end, once, page.keys);
      const BlockRows values = reader.values(pages[block], seen.begin, seen.end, once, page.values);
      for (int64_t r = 0; r < n;) {  // rows that see the block usually lie side by side
        int64_t side_by_side = 0;
        while (r + side_by_side < n && few.rows[r + side_by_side].seen.begin < few.rows[r + side_by_side].seen.end) {
          ++side_by_side;
        }
        if (side_by_side > 0) {
          attend_block(args, few, keys, values, r, side_by_side, seen);
        }
        r += side_by_side + 1;
      }
    }
    if (ends_range(block)) {
      merge_ranges(few.rows, n, v_padded);
    }
  }
  merge_ranges(few.rows, n, v_padded);
  for (int64_t r = 0; r < n; ++r) {
    finish_row(args, few.rows[r]);
  }
}

}  // namespace tessera::TESSERA_ISA

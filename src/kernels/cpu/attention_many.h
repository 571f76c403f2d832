#pragma once
// Attention of many query rows of one KV head and sequence, for attention's kernel body (see vec.h).
//
// A vector holds one number of each of sixteen rows, so that queries, scores and weighted values lie transposed
// ([element][row]), a key's or value's element is broadcast to all rows, and nothing is ever added across lanes. Every
// row meets the operations of attention_few.h in the same order: both give equal bits.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/cpu/attention_page.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/vec_mask.h"
#include "kernels/cpu/vec_math.h"
#include "kernels/ops/attention.h"

namespace tessera::TESSERA_ISA {

inline constexpr int64_t kLanes = 16;
/// Rows that walk the pages together: the more, the less it costs to convert a page; scratch stays near the core.
inline constexpr int64_t kManyRows = 64;
/// Vectors of rows that one tile holds in registers, and its dots with keys, each of which has up to five sums alive.
/// Two vectors by four keys are 4 % faster than by two. In plain C++ the smallest tile compiles fastest.
#if defined(__AVX512F__)
inline constexpr int kTileVectors = 2;
inline constexpr int kTileDots = 8;
#elif defined(__AVX2__)
inline constexpr int kTileVectors = 1;
inline constexpr int kTileDots = 2;
#else
inline constexpr int kTileVectors = 1;
inline constexpr int kTileDots = 1;
#endif

/// A softmax in progress of sixteen rows: sums are relative to exp(max).
struct LaneSoftmax {
  alignas(64) float max[kLanes];
  alignas(64) float sums[16 * kLanes];  // [running sum][row]
  float* values;                        // [v_padded][row] weighted values
};

/// Sixteen query rows, one per lane; lanes without a row repeat the last one.
struct LaneRows {
  int64_t n;  // rows that exist
  QueryRow rows[kLanes];
  int64_t all_first;  // first and last position that all rows see
  int64_t all_position;
  LaneSoftmax range;
  LaneSoftmax total;
  const float* q;  // [k_padded][row]
  // Of the current block:
  CpuShare seen;                                   // keys that any row sees
  bool whole;                                      // all rows see all keys
  Mask16 seeing;                                   // rows that see any key
  Mask16 visible[kPageTokens];                     // rows that see a key
  alignas(64) float scores[kPageTokens * kLanes];  // [key][row]; after the softmax, weights
  alignas(64) float decay[kLanes];                 // factor of the sums before this block
};

/// What many rows work in.
struct ManyRows {
  alignas(64) float q[kManyRows * kAttentionMaxDim];
  alignas(64) float range_values[kManyRows * kAttentionMaxDim];
  alignas(64) float total_values[kManyRows * kAttentionMaxDim];
  LaneRows vectors[kManyRows / kLanes];
};

/// Lane j of vector i goes to lane i of vector j: four perfect shuffles of 256 numbers exchange the halves of an index.
inline void transpose(F32x16 (&x)[kLanes]) {
#pragma GCC unroll 4
  for (int round = 0; round < 4; ++round) {
    F32x16 shuffled[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      interleave(x[i], x[i + kLanes / 2], shuffled[2 * i], shuffled[2 * i + 1]);
    }
    std::copy_n(shuffled, kLanes, x);
  }
}

/// Dots of kVectors x 16 rows and kKeys keys.
template <int kVectors, int kKeys>
struct DotTile {
  F32x16 sums[kVectors][kKeys];
};

/// Adds the running sums lane, lane + kStride, lane + 2 kStride, ... of the dots as the tree of summation.h does. Depth
/// first, few are alive at a time. q: kVectors times [dim][row]; keys: [kKeys, dim]; dim a multiple of 16 kUnroll.
template <int kStride, int kUnroll, int kVectors, int kKeys>
[[gnu::always_inline]] inline DotTile<kVectors, kKeys> dot_lanes(const float* q, const float* keys, int64_t dim,
                                                                 int64_t lane) {
  DotTile<kVectors, kKeys> tile;
  if constexpr (kStride < 16) {
    tile = dot_lanes<2 * kStride, kUnroll, kVectors, kKeys>(q, keys, dim, lane);
    const auto upper = dot_lanes<2 * kStride, kUnroll, kVectors, kKeys>(q, keys, dim, lane + kStride);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
      for (int k = 0; k < kKeys; ++k) {
        tile.sums[v][k] = tile.sums[v][k] + upper.sums[v][k];
      }
    }
  } else {
#pragma GCC unroll 4
    for (auto& row : tile.sums) {
#pragma GCC unroll 4
      for (F32x16& sum : row) {
        sum = zero();
      }
    }
    for (int64_t i = lane; i < dim; i += 16 * kUnroll) {
#pragma GCC unroll 4
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t element = i + 16 * u;
        F32x16 x[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          x[v] = load(q + (v * dim + element) * kLanes);
        }
#pragma GCC unroll 4
        for (int k = 0; k < kKeys; ++k) {
          const F32x16 key = splat(keys[k * dim + element]);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) {
            tile.sums[v][k] = fma(x[v], key, tile.sums[v][k]);
          }
        }
      }
    }
  }
  return tile;
}

/// scores[key][row] = q_row . key, unscaled, for kVectors neighbours and the keys [begin, end), in whole tiles.
template <int kUnroll, int kVectors>
inline void score_lanes(LaneRows* vectors, const float* keys, int64_t dim, const CpuShare& seen) {
  constexpr int kKeys = kTileDots / kVectors;
  for (int64_t key = seen.begin / kKeys * kKeys; key < seen.end; key += kKeys) {
    const auto tile = dot_lanes<1, kUnroll, kVectors, kKeys>(vectors->q, keys + key * dim, dim, 0);
    for (int v = 0; v < kVectors; ++v) {
      for (int k = 0; k < kKeys; ++k) {
        store(vectors[v].scores + (key + k) * kLanes, tile.sums[v][k]);
      }
    }
  }
}

/// Finds what the rows see of a block.
inline void look_at_block(LaneRows& lanes, int64_t block) {
  const int64_t start = block * kPageTokens;
  lanes.whole = lanes.all_first <= start && start + kPageTokens <= lanes.all_position + 1;
  lanes.seen = lanes.whole ? CpuShare{0, kPageTokens} : kNoKeys;
  if (!lanes.whole) {
    for (const QueryRow& row : lanes.rows) {
      lanes.seen = hull(lanes.seen, row.keys_of(block));
    }
  }
}

/// Fills the masks for a block.
inline void mark_visible(LaneRows& lanes, int64_t block) {
  float before[kLanes];  // the last key in front of those that a row sees
  float end[kLanes];
  for (int64_t r = 0; r < kLanes; ++r) {
    const CpuShare seen = lanes.rows[r].keys_of(block);
    before[r] = static_cast<float>(seen.begin - 1);
    end[r] = static_cast<float>(seen.end);
  }
  lanes.seeing = less(load(before), load(end) - splat(1.0F));
  for (int64_t j = 0; j < kPageTokens; ++j) {
    const F32x16 key = splat(static_cast<float>(j));
    lanes.visible[j] = less(load(before), key) & less(key, load(end));
  }
}

/// Scaled scores of a key; minus infinity where a row does not see it.
template <bool kWhole>
inline F32x16 scaled_scores(const AttentionArgs& args, const LaneRows& lanes, int64_t key) {
  if (!kWhole && (key < lanes.seen.begin || key >= lanes.seen.end)) {
    return splat(kMinusInfinity);
  }
  F32x16 s = load(lanes.scores + key * kLanes) * splat(args.scale);
  if (args.softcap > 0) {
    s = softcap(s, args.softcap);
  }
  return kWhole ? s : select(lanes.visible[key], s, splat(kMinusInfinity));
}

/// e^(score - base) of a key; 0 where a row does not see it (found without exponentials that underflow: they are slow).
template <bool kWhole>
inline F32x16 weights_of(const LaneRows& lanes, int64_t key, F32x16 base) {
  const F32x16 x = load(lanes.scores + key * kLanes) - base;
  if (kWhole) {
    return exp_down(x);
  }
  const Mask16& visible = lanes.visible[key];
  return select(visible, exp_down(select(visible, x, zero())), zero());
}

/// Turns scores into weights and moves the rows' range on, all but its values.
template <bool kWhole>
inline void softmax_lanes(const AttentionArgs& args, LaneRows& lanes) {
  const F32x16 old_max = load(lanes.range.max);
  F32x16 low_max = old_max;  // two chains are faster than one
  F32x16 high_max = old_max;
  for (int64_t i = 0; i < 16; ++i) {
    const F32x16 low = scaled_scores<kWhole>(args, lanes, i);
    const F32x16 high = scaled_scores<kWhole>(args, lanes, i + 16);
    store(lanes.scores + i * kLanes, low);
    store(lanes.scores + (i + 16) * kLanes, high);
    low_max = max(low, low_max);  // the old one where `low` is NaN
    high_max = max(high, high_max);
  }
  const F32x16 lowest = splat(std::numeric_limits<float>::lowest());
  F32x16 new_max = max(low_max, high_max);
  const Mask16 none_finite = less(new_max, lowest);
  new_max = select(kWhole ? none_finite : none_finite & lanes.seeing, splat(kNaN), new_max);
  store(lanes.range.max, new_max);
  // Sums of rows that have seen no key are zero, whatever their factor.
  const F32x16 decay = exp_down(select(less(old_max, lowest), zero(), old_max - new_max));
  store(lanes.decay, decay);
  for (int64_t i = 0; i < 16; ++i) {
    const F32x16 low = weights_of<kWhole>(lanes, i, new_max);
    const F32x16 high = weights_of<kWhole>(lanes, i + 16, new_max);
    store(lanes.scores + i * kLanes, low);
    store(lanes.scores + (i + 16) * kLanes, high);
    float* sum = lanes.range.sums + i * kLanes;
    store(sum, fma(load(sum), decay, low + high));
  }
}

/// values[c][row] = values[c][row] * decay[row] + sum of weight[j][row] * value[j][c] over keys j in [begin, end), for
/// kColumns columns from `column`. A row skips keys that it does not see: they may hold anything.
template <bool kWhole, int kVectors, int kColumns>
inline void add_lane_columns(LaneRows* vectors, const float* values, int64_t v_padded, int64_t column,
                             const CpuShare& seen) {
  F32x16 total[kVectors][kColumns];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const F32x16 decay = load(vectors[v].decay);
    const float* from = vectors[v].range.values + column * kLanes;
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
      total[v][c] = load(from + c * kLanes) * decay;
    }
  }
  for (int64_t j = seen.begin; j < seen.end; ++j) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
      const F32x16 value = splat(values[j * v_padded + column + c]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const F32x16 with_key = fma(load(vectors[v].scores + j * kLanes), value, total[v][c]);
        total[v][c] = kWhole ? with_key : select(vectors[v].visible[j], with_key, total[v][c]);
      }
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    float* to = vectors[v].range.values + column * kLanes;
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
      store(to + c * kLanes, total[v][c]);
    }
  }
}

/// One block of keys and values for kVectors neighbours. keys: [32, k_padded]; values: [32, v_padded].
template <bool kWhole, int kVectors>
inline void attend_tile(const AttentionArgs& args, LaneRows* vectors, const float* keys, const float* values,
                        const CpuShare& seen) {
  const int64_t k_padded = padded_dim(args.format.k_dim);
  const int64_t v_padded = padded_dim(args.format.v_dim);
  const auto score = k_padded % 64 == 0 ? score_lanes<4, kVectors> : score_lanes<1, kVectors>;
  score(vectors, keys, k_padded, seen);
  for (int v = 0; v < kVectors; ++v) {
    softmax_lanes<kWhole>(args, vectors[v]);
  }
  constexpr int kColumns = kAccumulators / kVectors;
  for (int64_t column = 0; column < v_padded; column += kColumns) {
    add_lane_columns<kWhole, kVectors, kColumns>(vectors, values, v_padded, column, seen);
  }
}

/// The same for n_vectors of them.
template <int kVectors>
inline void attend_tiles(const AttentionArgs& args, LaneRows* vectors, int64_t n_vectors, int64_t block,
                         const float* keys, const float* values) {
  int64_t at = 0;
  for (; at + kVectors <= n_vectors; at += kVectors) {
    LaneRows* tile = vectors + at;
    CpuShare seen = kNoKeys;
    bool whole = true;
    for (int v = 0; v < kVectors; ++v) {
      seen = hull(seen, tile[v].seen);
      whole = whole && tile[v].whole;
    }
    if (whole) {
      attend_tile<true, kVectors>(args, tile, keys, values, seen);
    } else if (seen.begin < seen.end) {
      for (int v = 0; v < kVectors; ++v) {
        mark_visible(tile[v], block);
      }
      attend_tile<false, kVectors>(args, tile, keys, values, seen);
    }
  }
  if constexpr (kVectors > 1) {
    attend_tiles<kVectors / 2>(args, vectors + at, n_vectors - at, block, keys, values);
  }
}

/// Ends the current range of the rows that have seen keys in it: adds it to the ranges before, both relative to the
/// larger maximum, and starts it anew. A row's first range is taken as it is.
inline void merge_lanes(LaneRows& lanes, int64_t v_padded) {
  const F32x16 lowest = splat(std::numeric_limits<float>::lowest());
  const F32x16 total_max = load(lanes.total.max);
  const F32x16 range_max = load(lanes.range.max);
  const Mask16 first = less(total_max, lowest);
  const Mask16 nothing = less(range_max, lowest);
  const F32x16 new_max = max(total_max, range_max);
  const F32x16 total_factor = exp(select(first, zero(), total_max - new_max));
  const F32x16 range_factor = exp(select(nothing, zero(), range_max - new_max));
  const auto merge = [&](float* into, float* from, int64_t n) {
    for (int64_t i = 0; i < n * kLanes; i += kLanes) {
      const F32x16 old = load(into + i);
      const F32x16 added = load(from + i);
      const F32x16 both = fma(old, total_factor, added * range_factor);
      store(into + i, select(nothing, old, select(first, added, both)));
      store(from + i, zero());
    }
  };
  merge(lanes.total.sums, lanes.range.sums, 16);
  merge(lanes.total.values, lanes.range.values, v_padded);
  store(lanes.total.max, select(nothing, total_max, new_max));
  store(lanes.range.max, splat(kMinusInfinity));
}

/// Prepares vector `index` for n <= 16 query rows.
inline void start_lanes(const AttentionArgs& args, ManyRows& many, int64_t index, const QueryRow* rows, int64_t n) {
  const int64_t k_padded = padded_dim(args.format.k_dim);
  const int64_t v_padded = padded_dim(args.format.v_dim);
  LaneRows& lanes = many.vectors[index];
  float* q = many.q + index * k_padded * kLanes;
  lanes.n = n;
  lanes.q = q;
  lanes.range.values = many.range_values + index * v_padded * kLanes;
  lanes.total.values = many.total_values + index * v_padded * kLanes;
  for (LaneSoftmax* softmax : {&lanes.range, &lanes.total}) {
    std::fill_n(softmax->max, kLanes, kMinusInfinity);
    std::fill_n(softmax->sums, 16 * kLanes, 0.0F);
    std::fill_n(softmax->values, v_padded * kLanes, 0.0F);
  }
  lanes.all_first = rows[0].first;
  lanes.all_position = rows[0].position;
  for (int64_t r = 0; r < kLanes; ++r) {
    lanes.rows[r] = rows[std::min(r, n - 1)];
    lanes.all_first = std::max(lanes.all_first, lanes.rows[r].first);
    lanes.all_position = std::min(lanes.all_position, lanes.rows[r].position);
  }
  for (int64_t i = 0; i < k_padded; i += 16) {
    F32x16 block[kLanes];
    for (int64_t r = 0; r < kLanes; ++r) {
      block[r] = load_n(lanes.rows[r].q + i, args.format.k_dim - i);
    }
    transpose(block);
    for (int64_t c = 0; c < 16; ++c) {
      store(q + (i + c) * kLanes, block[c]);
    }
  }
}

/// Adds the sinks' exponentials to the denominators and writes the rows' results.
inline void finish_lanes(const AttentionArgs& args, const LaneRows& lanes) {
  F32x16 sums[16];
  for (int i = 0; i < 16; ++i) {
    sums[i] = load(lanes.total.sums + i * kLanes);
  }
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      sums[i] = sums[i] + sums[i + half];
    }
  }
  F32x16 denominator = sums[0];
  F32x16 factor = splat(1.0F);
  if (args.sinks != nullptr) {
    float sink_of[kLanes];
    for (int64_t r = 0; r < kLanes; ++r) {
      sink_of[r] = args.sinks[lanes.rows[r].head];
    }
    const F32x16 sink = load(sink_of);
    const F32x16 total_max = load(lanes.total.max);
    const F32x16 new_max = max(total_max, sink);
    factor = exp(total_max - new_max);
    denominator = denominator * factor + exp(sink - new_max);
  }
  const F32x16 inverse = factor / denominator;
  for (int64_t i = 0; i < args.format.v_dim; i += 16) {
    F32x16 block[16];
    for (int64_t c = 0; c < 16; ++c) {
      block[c] = load(lanes.total.values + (i + c) * kLanes) * inverse;
    }
    transpose(block);
    for (int64_t r = 0; r < lanes.n; ++r) {
      store_n(lanes.rows[r].out + i, block[r], args.format.v_dim - i);
    }
  }
}

/// n query rows of one KV head and sequence, n <= kManyRows.
inline void attend_many(const AttentionArgs& args, const PageReader& reader, const int32_t* pages, const QueryRow* rows,
                        int64_t n, ManyRows& many, PageScratch& page) {
  const int64_t v_padded = padded_dim(args.format.v_dim);
  const std::span vectors(many.vectors, static_cast<size_t>((n + kLanes - 1) / kLanes));
  for (int64_t r = 0; r < n; r += kLanes) {
    start_lanes(args, many, r / kLanes, rows + r, std::min(kLanes, n - r));
  }
  const CpuShare blocks = blocks_of(rows, n);
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    CpuShare seen = kNoKeys;
    for (LaneRows& lanes : vectors) {
      look_at_block(lanes, block);
      seen = hull(seen, lanes.seen);
    }
    if (seen.begin < seen.end) {
      const float* keys = reader.keys(pages[block], seen.begin, seen.end, false, page.keys).floats();
      const float* values = reader.values(pages[block], seen.begin, seen.end, false, page.values).floats();
      attend_tiles<kTileVectors>(args, vectors.data(), std::ssize(vectors), block, keys, values);
    }
    if (ends_range(block) || block + 1 == blocks.end) {
      for (LaneRows& lanes : vectors) {
        merge_lanes(lanes, v_padded);
      }
    }
  }
  for (const LaneRows& lanes : vectors) {
    finish_lanes(args, lanes);
  }
}

}  // namespace tessera::TESSERA_ISA

#pragma once
// What attention's kernel body (attention_body.h) hands to its two ways of computing: query rows and a place for pages.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "device/cpu/cpu_launch.h"
#include "kernels/cpu/vec.h"
#include "kernels/ops/attention.h"

namespace tessera::TESSERA_ISA {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// One query head of one token.
struct QueryRow {
  int64_t head = 0;          // on this device
  int64_t first = 0;         // first visible position
  int64_t position = 0;      // last visible position
  const float* q = nullptr;  // [k_dim]
  float* out = nullptr;      // [v_dim]

  /// The visible keys of a block: none when begin >= end.
  [[nodiscard]] CpuShare keys_of(int64_t block) const {
    return {std::max<int64_t>(0, first - block * kPageTokens),
            std::min(kPageTokens, position + 1 - block * kPageTokens)};
  }
};

/// Query row `index` of a KV head: token index / n_rep, query head head_begin + index % n_rep.
inline QueryRow query_row(const AttentionArgs& args, int64_t head_begin, int64_t index) {
  const int64_t token = index / args.n_rep;
  QueryRow row;
  row.head = head_begin + index % args.n_rep;
  row.position = args.positions[token];
  row.first = args.window > 0 ? std::max<int64_t>(0, row.position - args.window + 1) : 0;
  row.q = args.q + token * args.q_stride + row.head * args.format.k_dim;
  row.out = args.out + token * args.out_stride + row.head * args.format.v_dim;
  return row;
}

/// Of a block, no keys. The neutral element of hull().
inline constexpr CpuShare kNoKeys = {kPageTokens, 0};

/// The smallest share of a block that holds the keys of both; b may be empty in any way.
inline CpuShare hull(const CpuShare& a, const CpuShare& b) {
  return b.begin < b.end ? CpuShare{std::min(a.begin, b.begin), std::max(a.end, b.end)} : a;
}

/// The blocks from the first to the last that any of n rows sees.
inline CpuShare blocks_of(const QueryRow* rows, int64_t n) {
  int64_t first = rows[0].first;
  int64_t last = rows[0].position;
  for (int64_t r = 1; r < n; ++r) {
    first = std::min(first, rows[r].first);
    last = std::max(last, rows[r].position);
  }
  return {first / kPageTokens, last / kPageTokens + 1};
}

/// Keys and values of a page as float32.
struct PageScratch {
  alignas(64) float keys[kPageTokens * kAttentionMaxDim];    // [32, k_padded]
  alignas(64) float values[kPageTokens * kAttentionMaxDim];  // [32, v_padded]
};

/// Whether a softmax range ends with this block.
inline bool ends_range(int64_t block) {
  constexpr int64_t kRangeBlocks = kAttentionRange / kPageTokens;
  return block % kRangeBlocks == kRangeBlocks - 1;
}

}  // namespace tessera::TESSERA_ISA

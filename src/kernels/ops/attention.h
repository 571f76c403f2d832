#pragma once
// attention: causal softmax attention of this batch's queries over the pages of their sequences.
//
// Query head h of this device uses KV head h / n_rep. Token t at position p = positions[t] of sequence row
// s = seq_rows[t] sees positions j with j <= p, and j > p - window when window > 0. Position j lies in page
// page_table[s * page_table_stride + j / kPageTokens] at place j % kPageTokens; pages wholly behind the window may be
// negative (freed) and are never read. score = softcap(scale * q.k), softcap(x) = cap * tanh(x / cap) when cap > 0;
// a sink logit, where given, joins the softmax's denominator only.
// Canonical order: keys in blocks of kPageTokens aligned to position 0, an online softmax over the blocks of each range
// of kAttentionRange positions, ranges merged in ascending order. It depends on position and window alone: not on
// n_tokens, batch, threads or cuts. Bytes: the visible pages once per token block, q and out once.

#include <cstdint>
#include <vector>

#include "kernels/ops/kv_layout.h"

namespace tessera {

/// Positions per independent softmax range.
inline constexpr int64_t kAttentionRange = 256;

/// Largest k_dim and v_dim that kernels take: their scratch is sized for it. Whoever makes AttentionArgs refuses more.
inline constexpr int64_t kAttentionMaxDim = 512;

struct AttentionArgs {
  const float* q = nullptr;  // [n_tokens, q_stride] f32; row t holds this device's query heads of k_dim
  int64_t q_stride = 0;
  float* out = nullptr;  // [n_tokens, out_stride] f32; row t holds this device's query heads of v_dim
  int64_t out_stride = 0;
  int64_t n_rep = 1;  // query heads per KV head
  KvFormat format;
  std::vector<KvPanel> panels;
  const int32_t* positions = nullptr;   // [n_tokens] i32
  const int32_t* seq_rows = nullptr;    // [n_tokens] i32, row of the page table
  const int32_t* page_table = nullptr;  // [n_seqs, page_table_stride] i32
  int64_t page_table_stride = 0;
  float scale = 1;
  float softcap = 0;             // 0: none
  int64_t window = 0;            // 0: none
  const float* sinks = nullptr;  // [query heads of this device] f32; null: none
};

}  // namespace tessera

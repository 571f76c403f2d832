#pragma once
// delta_rule: the gated delta rule, a linear attention whose state is a matrix S [k_dim, v_dim] per value head
// (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464).
//
// For each token in order, with q' = q / max(|q|, eps) / sqrt(k_dim) and k' = k / max(|k|, eps) of the head's key head,
// d = e^log_decay:
//   delta = (v - d * S^T k') * strength;   out = d * S^T q' + (k'.q') * delta;   S = d * S + k' delta^T
// (out is the state's own answer S^T q' after the update). S begins as the slot's state, zero at position 0, and is
// left there. Sums over k_dim run in ascending order, by fused multiply-adds; |q|, |k| and k'.q' in the canonical order
// of summation.h. Threads share value heads and columns of S: what a head computes depends on its own sequence alone.
// Two forms: a sequence's tokens of a micro-batch go in chunks of kDeltaChunk, the last one shorter, while at least
// kDeltaChunkMin remain, and one by one otherwise. Within a chunk of n tokens all are computed from the state before it
// (kernels/cpu/delta_chunk.h). They agree within n * (k_dim + n) roundings of the state's columns (delta_rule_test).
// Bytes: n_tokens * (channels + value heads * v_dim) * 4, and the states of the batch's sequences twice.

#include <vector>

#include "kernels/ops/rec_layout.h"

namespace tessera {

/// One thread of a Xeon with AVX-512, 32 value heads of 128: 53 us per token for 15 tokens one by one, 37 for 16 and 40
/// for 64 in chunks; 512 tokens one by one take 93, in chunks 51 (bench/delta_rule_bench.cc).
inline constexpr int64_t kDeltaChunk = 64;
inline constexpr int64_t kDeltaChunkMin = 16;

struct DeltaRuleArgs {
  const float* qkv = nullptr;  // [n_tokens, qkv_stride] f32; row t as rec_layout.h says
  int64_t qkv_stride = 0;
  const float* log_decay = nullptr;  // [n_tokens, gate_stride] f32; row t holds this device's value heads
  const float* strength = nullptr;   // [n_tokens, gate_stride] f32
  int64_t gate_stride = 0;
  float* out = nullptr;  // [n_tokens, out_stride] f32; row t holds this device's value heads of v_dim
  int64_t out_stride = 0;
  float eps = 0;
  RecFormat format;
  std::vector<RecPanel> panels;
  RecRows rows;
};

}  // namespace tessera

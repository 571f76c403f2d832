#pragma once
// Blocks of hybrids of gated attention and gated delta net (the Qwen3.5 family): loading and writing them.
//
// A delta layer's attention axis counts key heads; each has n_rep value heads, which the file stores grouped by key
// head (qwen3next) or tiled. Tensor names, shapes and steps: docs/gguf-facts.md 2.6.

#include <cstdint>
#include <vector>

#include "models/blocks.h"

namespace tessera {

/// Layers with recurrent state: attention.recurrent_layers, or all but every full_attention_interval-th.
std::vector<uint8_t> read_recurrent_layers(ModelReader& reader);

/// The delta layers' heads, from the ssm.* keys; sets the attention axis of those layers.
RecLayerSpec read_delta_spec(ModelReader& reader, const std::vector<uint8_t>& recurrent, bool tiled);

struct DeltaWeights {
  TensorIndex norm = kNoTensor;      // [n_embd]
  Weight qkv;                        // [2 * keys + values, n_embd], cut by rows
  Weight z;                          // [values, n_embd], cut by rows
  Weight alpha;                      // [value heads, n_embd], cut by rows; of tiled value heads
  Weight beta;                       // [value heads, n_embd], cut by rows; of tiled value heads
  Weight beta_alpha;                 // of grouped ones: [beta, alpha] per key head, cut by rows
  TensorIndex conv = kNoTensor;      // [n_taps, 2 * keys + values]
  TensorIndex dt_bias = kNoTensor;   // [value heads]
  TensorIndex a = kNoTensor;         // [value heads]
  TensorIndex out_norm = kNoTensor;  // [v_dim]
  Weight out;                        // [n_embd, values], cut by columns
};
DeltaWeights load_delta(ModelReader& reader, int32_t layer, const RecLayerSpec& spec);

/// x [n_tokens, n_embd] -> what the layer adds to x [n_tokens, n_embd]
Value delta_block(Builder& b, int32_t layer, const DeltaWeights& w, const RecLayerSpec& spec, float eps, Value x);

/// Attention whose attn_q makes a gate beside each query head. Keys, values and norms as load_attention().
AttentionWeights load_gated_attention(ModelReader& reader, int32_t layer, const AttentionShape& shape);

/// Norm, projections, per-head norms, rope, cache, attention, sigmoid gate, output projection.
/// x [n_tokens, n_embd] -> what the layer adds to x [n_tokens, n_embd]
Value gated_attention_block(Builder& b, int32_t layer, const AttentionWeights& w, const AttentionShape& shape,
                            const AttentionRule& rule, const RopeRef& rope, Value x);

}  // namespace tessera

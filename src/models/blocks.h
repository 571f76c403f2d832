#pragma once
// Blocks that several architectures share: loading and writing of attention and gated feed-forward layers.
//
// An architecture file decides norms, residuals, windows and scales; these functions only save it from spelling out
// names and cut rules that are the same everywhere. Tensor names: docs/gguf-facts.md 2.3.

#include <cstdint>
#include <string>

#include "models/model_reader.h"
#include "program/build/builder.h"

namespace tessera {

/// Heads of one layer.
struct AttentionShape {
  int64_t n_head = 0;
  int64_t n_kv_head = 0;
  int64_t k_dim = 0;  // elements per query and key head
  int64_t v_dim = 0;  // elements per value head
};

/// Reads head counts and dimensions of all layers, and sets the table's attention axes. Missing attention.head_count_kv
/// means one KV head per head, missing key and value lengths n_embd / n_head.
std::vector<AttentionShape> read_attention_shapes(ModelReader& reader);

/// Reads feed_forward_length of all layers into the table's feed-forward axes.
void read_ffn_sizes(ModelReader& reader);

/// true for window layers. The file's attention.sliding_window_pattern is a bool per layer, or the distance between
/// full layers, or absent (`distance`). Without a window every layer is a full one.
std::vector<bool> window_layers(ModelReader& reader, int64_t distance, int64_t window);

struct AttentionWeights {
  TensorIndex norm = kNoTensor;       // [n_embd]
  Weight wq;                          // [n_head * k_dim, n_embd], cut by rows; twice as many with gates
  Weight wk;                          // [n_kv_head * k_dim, n_embd], cut by rows
  Weight wv;                          // [n_kv_head * v_dim, n_embd], cut by rows
  Weight wo;                          // [n_embd, n_head * v_dim], cut by columns
  TensorIndex q_norm = kNoTensor;     // [k_dim], optional
  TensorIndex k_norm = kNoTensor;     // [k_dim], optional
  TensorIndex sinks = kNoTensor;      // [n_head], optional
  TensorIndex post_norm = kNoTensor;  // [n_embd], optional
};

struct FfnWeights {
  TensorIndex norm = kNoTensor;       // [n_embd]
  Weight gate;                        // [n_ff, n_embd], cut by rows
  Weight up;                          // [n_ff, n_embd], cut by rows
  Weight down;                        // [n_embd, n_ff], cut by columns
  TensorIndex post_norm = kNoTensor;  // [n_embd], optional
};

/// Which optional tensors an architecture has.
struct BlockOptions {
  bool qk_norm = false;                       // attn_q_norm and attn_k_norm, required
  bool sinks = false;                         // attn_sinks, required
  bool query_gate = false;                    // attn_q makes [query, gate] per head, twice k_dim
  bool post_norms = false;                    // post_attention_norm and post_ffw_norm, required
  ScaleRule ffn_scales = ScaleRule::kUnused;  // of ffn_gate, ffn_up and ffn_down, where the file has them
  const char* ffn_norm = "ffn_norm";          // name of the norm before the feed-forward part
};

AttentionWeights load_attention(ModelReader& reader, int32_t layer, const AttentionShape& shape,
                                const BlockOptions& options);
FfnWeights load_ffn(ModelReader& reader, int32_t layer, const BlockOptions& options);

/// What an attention layer does beside its weights.
struct AttentionRule {
  float eps = 0;
  float scale = 0;     // of q.k
  float softcap = 0;   // 0: none
  int64_t window = 0;  // 0: full
};

/// Norm, projections, optional per-head norms, rope, cache, attention, output projection, optional post norm.
/// x [n_tokens, n_embd] -> what the layer adds to x [n_tokens, n_embd]
Value attention_block(Builder& b, int32_t layer, const AttentionWeights& w, const AttentionShape& shape,
                      const AttentionRule& rule, const RopeRef& rope, Value x);

/// Norm, gated feed-forward, optional post norm. x [n_tokens, n_embd] -> what the layer adds to x [n_tokens, n_embd]
Value ffn_block(Builder& b, const FfnWeights& w, GluActivation activation, float eps, Value x);

/// Outputs only, final norm, head; softcap 0: none. Embeddings are the rows behind that norm.
void head_block(Builder& b, TensorIndex norm, const Weight& head, float eps, float softcap, Value x);

}  // namespace tessera

#pragma once
// Mixtures of experts as feed-forward layers: what several architectures share (docs/gguf-facts.md 2.3, 2.5).

#include <cstdint>

#include "models/blocks.h"
#include "models/model_reader.h"
#include "program/build/builder.h"

namespace tessera {

/// What an architecture decides about its experts.
struct ExpertRule {
  Gating gating = Gating::kSoftmax;
  bool normalize = false;
  // Of the products, where the file has them (docs/decisions/003-optional-scales.md).
  ScaleRule scales = ScaleRule::kUnused;         // of the experts
  ScaleRule shared_scales = ScaleRule::kUnused;  // of the shared expert
  GluActivation activation = GluActivation::kSilu;
  float limit = 0;  // of kSiluClamped
  float alpha = 0;
};

/// Sizes of a model's experts. n_experts 0: it has none.
struct ExpertShape {
  int64_t n_experts = 0;
  int64_t n_used = 0;
  int64_t n_ff = 0;
  int64_t n_ff_shared = 0;  // 0: no shared expert
  float weights_scale = 1;
};

struct ExpertWeights {
  TensorIndex norm = kNoTensor;            // [n_embd]
  TensorIndex router = kNoTensor;          // [n_experts, n_embd]
  TensorIndex router_bias = kNoTensor;     // [n_experts], optional
  TensorIndex selection_bias = kNoTensor;  // [n_experts], optional
  Weight gate;                             // experts of [n_ff, n_embd]
  Weight up;                               // experts of [n_ff, n_embd]
  Weight down;                             // experts of [n_embd, n_ff]
  bool has_shared = false;
  Weight shared_gate;                     // [n_ff_shared, n_embd], cut by rows
  Weight shared_up;                       // [n_ff_shared, n_embd], cut by rows
  Weight shared_down;                     // [n_embd, n_ff_shared], cut by columns
  TensorIndex shared_switch = kNoTensor;  // [1, n_embd], optional: the shared expert's sigmoid gate
};

/// Reads expert_count, expert_used_count, expert_feed_forward_length (missing or 0: `fallback_n_ff`),
/// expert_shared_feed_forward_length (missing or 0: `fallback_n_ff_shared`) and expert_weights_scale.
ExpertShape read_expert_shape(ModelReader& reader, int64_t fallback_n_ff, int64_t fallback_n_ff_shared);

/// Sets the layer's axes (experts; feed-forward for the shared expert) and names its tensors. norm: the name of the
/// norm in front, without `blk.N.`.
ExpertWeights load_experts(ModelReader& reader, int32_t layer, const ExpertShape& shape, const ExpertRule& rule,
                           std::string_view norm = "ffn_norm.weight");

/// Norm, routing, experts and shared expert. x [n_tokens, n_embd] -> what the layer adds to x [n_tokens, n_embd]
Value expert_block(Builder& b, int32_t layer, const ExpertWeights& w, const ExpertShape& shape, const ExpertRule& rule,
                   float eps, Value x);

}  // namespace tessera

#include "models/experts.h"

#include <fmt/format.h>

namespace tessera {

ExpertShape read_expert_shape(ModelReader& reader, int64_t fallback_n_ff, int64_t fallback_n_ff_shared) {
  ExpertShape shape;
  shape.n_experts = reader.integer("expert_count", 0);
  if (shape.n_experts == 0) {
    return shape;
  }
  shape.n_used = reader.integer("expert_used_count");
  if (shape.n_experts < 1 || shape.n_experts > kMaxExperts || shape.n_used < 1 || shape.n_used > shape.n_experts ||
      shape.n_used > kMaxExpertsUsed) {
    reader.fail(ErrorCode::kInvalidData, fmt::format("{} of {} experts for a token; at most {} of {} are possible",
                                                     shape.n_used, shape.n_experts, kMaxExpertsUsed, kMaxExperts));
    return {};
  }
  const auto size = [&](std::string_view key, int64_t fallback) {
    const int64_t n = reader.integer(key, 0);
    return n == 0 ? fallback : n;
  };
  shape.n_ff = size("expert_feed_forward_length", fallback_n_ff);
  shape.n_ff_shared = size("expert_shared_feed_forward_length", fallback_n_ff_shared);
  constexpr int64_t kMost = int64_t{1} << 24;
  if (shape.n_ff < 1 || shape.n_ff > kMost || shape.n_ff_shared < 0 || shape.n_ff_shared > kMost) {
    reader.fail(ErrorCode::kInvalidData,
                fmt::format("experts of width {} and shared ones of width {}", shape.n_ff, shape.n_ff_shared));
    return {};
  }
  const float scale = reader.number("expert_weights_scale", 0);
  shape.weights_scale = scale == 0 ? 1 : scale;
  return shape;
}

ExpertWeights load_experts(ModelReader& reader, int32_t layer, const ExpertShape& shape, const ExpertRule& rule,
                           std::string_view norm) {
  const std::string prefix = fmt::format("blk.{}.", layer);
  const int64_t n_embd = reader.n_embd();
  LayerAxes& axes = reader.table().layers[static_cast<size_t>(layer)];
  axes.n_experts = shape.n_experts;
  axes.n_ff = shape.n_ff_shared;
  ExpertWeights w;
  w.norm = reader.vector(prefix + std::string(norm), n_embd);
  w.router = reader.matrix(prefix + "ffn_gate_inp.weight", shape.n_experts, n_embd);
  w.router_bias = reader.optional_vector(prefix + "ffn_gate_inp.bias", shape.n_experts);
  w.selection_bias = reader.optional_vector(prefix + "exp_probs_b.bias", shape.n_experts);
  if (reader.has_tensor(prefix + "ffn_gate_up_exps.weight")) {
    w.gate = reader.experts(layer, "ffn_gate_up", shape.n_ff, n_embd, rule.scales, 0, 2);
    w.up = reader.experts(layer, "ffn_gate_up", shape.n_ff, n_embd, rule.scales, 1, 2);
  } else {
    w.gate = reader.experts(layer, "ffn_gate", shape.n_ff, n_embd, rule.scales);
    w.up = reader.experts(layer, "ffn_up", shape.n_ff, n_embd, rule.scales);
  }
  w.down = reader.experts(layer, "ffn_down", n_embd, shape.n_ff, rule.scales);
  w.has_shared = shape.n_ff_shared > 0;
  if (w.has_shared) {
    const TileSlot rows{TileKind::kFfn, layer, CutRule::rows(CutAxis::kFeedForward, 1)};
    w.shared_gate = reader.weight(prefix + "ffn_gate_shexp", shape.n_ff_shared, n_embd, rows, rule.shared_scales);
    w.shared_up = reader.weight(prefix + "ffn_up_shexp", shape.n_ff_shared, n_embd, rows, rule.shared_scales);
    w.shared_down =
        reader.weight(prefix + "ffn_down_shexp", n_embd, shape.n_ff_shared,
                      {TileKind::kFfn, layer, CutRule::columns(CutAxis::kFeedForward, 1)}, rule.shared_scales);
    if (reader.has_tensor(prefix + "ffn_gate_inp_shexp.weight")) {
      w.shared_switch = reader.matrix(prefix + "ffn_gate_inp_shexp.weight", 1, n_embd);
    }
  }
  return w;
}

Value expert_block(Builder& b, int32_t layer, const ExpertWeights& w, const ExpertShape& shape, const ExpertRule& rule,
                   float eps, Value x) {
  const Value h = b.rms_norm(x, w.norm, eps);  // [n_tokens, n_embd]
  RouteNode route{layer, w.router, w.router_bias, w.selection_bias, {}};
  route.rule.gating = rule.gating;
  route.rule.n_used = shape.n_used;
  route.rule.normalize = rule.normalize;
  route.rule.scale = shape.weights_scale;
  const Value routing = b.route(route, h);                 // [n_tokens, 2 * n_used]
  const Value gate = b.expert_linear(w.gate, h, routing);  // [expert rows, n_ff]
  const Value up = b.expert_linear(w.up, h, routing);      // [expert rows, n_ff]
  const Value act = b.glu(rule.activation, gate, up, rule.limit, rule.alpha);
  const Value down = b.expert_linear(w.down, act, routing);  // [expert rows, n_embd]
  const Value y = b.reduce(b.expert_sum(down, routing));     // [n_tokens, n_embd]
  if (!w.has_shared) {
    return y;
  }
  const Value shared_act =
      b.glu(GluActivation::kSilu, b.linear(w.shared_gate, h), b.linear(w.shared_up, h));  // [n_tokens, n_ff_shared]
  Value shared = b.reduce(b.linear(w.shared_down, shared_act));                           // [n_tokens, n_embd]
  if (w.shared_switch != kNoTensor) {
    shared = b.gate_rows(w.shared_switch, shared, h);
  }
  return b.add(y, shared);
}

}  // namespace tessera

#include "models/delta_net.h"

#include <fmt/format.h>
#include <utility>

namespace tessera {
namespace {

// Value heads of `per_head` rows or columns each, behind `begin`: as the file stores them.
void add_value_heads(const RecLayerSpec& spec, int64_t begin, int64_t per_head, std::vector<CutSegment>& segments) {
  if (!spec.tiled) {
    segments.push_back({begin, spec.n_rep * per_head});
    return;
  }
  for (int64_t r = 0; r < spec.n_rep; ++r) {
    segments.push_back({begin + r * spec.n_key_heads * per_head, per_head});
  }
}

TileSlot value_heads(const RecLayerSpec& spec, int32_t layer, CutDim dim, int64_t per_head) {
  TileSlot slot{TileKind::kAttn, layer, {CutAxis::kAttention, dim, {}}};
  add_value_heads(spec, 0, per_head, slot.cut.segments);
  return slot;
}

}  // namespace

std::vector<uint8_t> read_recurrent_layers(ModelReader& reader) {
  if (reader.has("attention.recurrent_layers")) {
    return reader.flags_per_layer("attention.recurrent_layers");
  }
  const int64_t interval = reader.integer("full_attention_interval", 4);
  std::vector<uint8_t> recurrent(static_cast<size_t>(reader.n_layer()));
  for (size_t l = 0; l < recurrent.size(); ++l) {
    recurrent[l] = interval < 1 || (static_cast<int64_t>(l) + 1) % interval != 0 ? 1 : 0;
  }
  return recurrent;
}

RecLayerSpec read_delta_spec(ModelReader& reader, const std::vector<uint8_t>& recurrent, bool tiled) {
  RecLayerSpec spec;
  spec.n_key_heads = reader.integer("ssm.group_count");
  spec.k_dim = reader.integer("ssm.state_size");
  spec.n_taps = reader.integer("ssm.conv_kernel");
  spec.tiled = tiled;
  const int64_t n_value_heads = reader.integer("ssm.time_step_rank");
  const int64_t n_values = reader.integer("ssm.inner_size");
  constexpr int64_t kMost = 1 << 20;
  constexpr int64_t kMostRep = 64;  // each value head of a key head may be a segment of its own
  if (spec.n_key_heads < 1 || n_value_heads < 1 || n_value_heads % spec.n_key_heads != 0 || n_value_heads > kMost ||
      n_value_heads / spec.n_key_heads > kMostRep || n_values < 1 || n_values % n_value_heads != 0 ||
      n_values > kMost || spec.k_dim < 1 || spec.k_dim > kMost || spec.n_taps < 2 || spec.n_taps > kMost) {
    reader.fail(
        ErrorCode::kInvalidData,
        fmt::format("{} key heads of {}, {} value heads of {} elements in all behind a convolution of {} are no "
                    "delta net",
                    spec.n_key_heads, spec.k_dim, n_value_heads, n_values, spec.n_taps));
    spec = {1, 1, 1, 1, 2, tiled};
  } else {
    spec.n_rep = n_value_heads / spec.n_key_heads;
    spec.v_dim = n_values / n_value_heads;
  }
  for (size_t l = 0; l < recurrent.size(); ++l) {
    if (recurrent[l] != 0) {
      reader.table().layers[l].n_kv_heads = spec.n_key_heads;
    }
  }
  return spec;
}

DeltaWeights load_delta(ModelReader& reader, int32_t layer, const RecLayerSpec& spec) {
  const std::string prefix = fmt::format("blk.{}.", layer);
  const int64_t n_embd = reader.n_embd();
  const int64_t n_keys = spec.n_key_heads * spec.k_dim;
  const int64_t n_value_heads = spec.n_key_heads * spec.n_rep;
  const int64_t n_values = n_value_heads * spec.v_dim;
  TileSlot fused{TileKind::kAttn, layer, {CutAxis::kAttention, CutDim::kRows, {{0, spec.k_dim}, {n_keys, spec.k_dim}}}};
  add_value_heads(spec, 2 * n_keys, spec.v_dim, fused.cut.segments);
  // What the reference engine does with optional scales here: docs/decisions/003-optional-scales.md.
  const ScaleRule scales = spec.tiled ? ScaleRule::kBeforeBias : ScaleRule::kUnused;
  DeltaWeights w;
  w.norm = reader.vector(prefix + "attn_norm.weight", n_embd);
  w.qkv = reader.weight(prefix + "attn_qkv", 2 * n_keys + n_values, n_embd, fused, scales);
  w.z = reader.weight(prefix + "attn_gate", n_values, n_embd, value_heads(spec, layer, CutDim::kRows, spec.v_dim),
                      scales);
  if (spec.tiled) {
    const TileSlot per_head = value_heads(spec, layer, CutDim::kRows, 1);
    w.alpha = reader.weight(prefix + "ssm_alpha", n_value_heads, n_embd, per_head);
    w.beta = reader.weight(prefix + "ssm_beta", n_value_heads, n_embd, per_head);
  } else {
    w.beta_alpha =
        reader.weight(prefix + "ssm_ba", 2 * n_value_heads, n_embd, value_heads(spec, layer, CutDim::kRows, 2), scales);
    // qkv and z once more in one piece, key head by key head, as older files have them.
    reader.skip_tensor(prefix + "ssm_in.weight");
    reader.skip_tensor(prefix + "ssm_in.scale");
  }
  w.conv = reader.transposed(prefix + "ssm_conv1d.weight", 2 * n_keys + n_values, spec.n_taps);
  w.dt_bias = reader.vector(prefix + "ssm_dt.bias", n_value_heads);
  w.a = reader.vector(prefix + "ssm_a", n_value_heads);
  w.out_norm = reader.vector(prefix + "ssm_norm.weight", spec.v_dim);
  w.out = reader.weight(prefix + "ssm_out", n_embd, n_values, value_heads(spec, layer, CutDim::kColumns, spec.v_dim),
                        scales);
  return w;
}

namespace {

// What the decays and the strengths are made from; both [n_tokens, value heads].
std::pair<Value, Value> alpha_and_beta(Builder& b, const DeltaWeights& w, const RecLayerSpec& spec, Value h) {
  if (spec.tiled) {
    const Value alpha = b.linear(w.alpha, h);
    return {alpha, b.linear(w.beta, h)};
  }
  const auto [beta, alpha] = b.split_heads(b.linear(w.beta_alpha, h), spec.n_rep);
  return {alpha, beta};
}

}  // namespace

Value delta_block(Builder& b, int32_t layer, const DeltaWeights& w, const RecLayerSpec& spec, float eps, Value x) {
  const Value h = b.rms_norm(x, w.norm, eps);                               // [n_tokens, n_embd]
  const Value qkv = b.short_conv(layer, spec, w.conv, b.linear(w.qkv, h));  // [n_tokens, 2 * keys + values]
  const Value z = b.linear(w.z, h);                                         // [n_tokens, values]
  const auto [alpha, beta] = alpha_and_beta(b, w, spec, h);                 // both [n_tokens, value heads]
  const auto [log_decay, strength] = b.delta_gates(layer, w.dt_bias, w.a, alpha, beta);
  const Value o = b.delta_rule(qkv, log_decay, strength, eps);  // [n_tokens, values]
  return b.reduce(b.linear(w.out, b.gated_norm(o, z, w.out_norm, eps)));
}

AttentionWeights load_gated_attention(ModelReader& reader, int32_t layer, const AttentionShape& shape) {
  return load_attention(reader, layer, shape, {.qk_norm = true, .query_gate = true});
}

Value gated_attention_block(Builder& b, int32_t layer, const AttentionWeights& w, const AttentionShape& shape,
                            const AttentionRule& rule, const RopeRef& rope, Value x) {
  const Value h = b.rms_norm(x, w.norm, rule.eps);                 // [n_tokens, n_embd]
  auto [q, gate] = b.split_heads(b.linear(w.wq, h), shape.k_dim);  // both [n_tokens, n_head, k_dim]
  Value k = b.linear(w.wk, h);                                     // [n_tokens, n_kv_head, k_dim]
  const Value v = b.linear(w.wv, h);                               // [n_tokens, n_kv_head, v_dim]
  q = b.rms_norm(q, w.q_norm, rule.eps, shape.k_dim);
  k = b.rms_norm(k, w.k_norm, rule.eps, shape.k_dim);
  Value* const heads[] = {&q, &k};
  b.rope(rope, heads);
  const KvLayerSpec spec{shape.n_kv_head, shape.k_dim, shape.v_dim, rule.window};
  const Value a = b.attention(q, b.append(layer, spec, k, v), rule.scale, rule.softcap);  // [n_tokens, n_head, v_dim]
  return b.reduce(b.linear(w.wo, b.glu(GluActivation::kSigmoid, gate, a)));
}

}  // namespace tessera

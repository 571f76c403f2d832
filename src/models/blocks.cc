#include "models/blocks.h"

#include <fmt/format.h>

namespace tessera {

std::vector<AttentionShape> read_attention_shapes(ModelReader& reader) {
  const auto n_layer = static_cast<size_t>(reader.n_layer());
  const std::vector<int64_t> n_head = reader.per_layer("attention.head_count");
  std::vector<AttentionShape> shapes(n_layer);
  const std::vector<int64_t> n_kv_head =
      reader.has("attention.head_count_kv") ? reader.per_layer("attention.head_count_kv") : n_head;
  for (size_t l = 0; l < n_layer; ++l) {
    if (n_head[l] < 1 || n_kv_head[l] < 1 || n_head[l] % n_kv_head[l] != 0 || n_head[l] > reader.n_embd() * 16) {
      reader.fail(ErrorCode::kInvalidData,
                  fmt::format("layer {} has {} heads on {} KV heads", l, n_head[l], n_kv_head[l]));
      return std::vector<AttentionShape>(n_layer, {1, 1, 1, 1});
    }
    shapes[l].n_head = n_head[l];
    shapes[l].n_kv_head = n_kv_head[l];
    // Heads are equally wide in all layers, however many a layer has: the first one's width is the default.
    shapes[l].k_dim = reader.integer("attention.key_length", reader.n_embd() / n_head[0]);
    shapes[l].v_dim = reader.integer("attention.value_length", reader.n_embd() / n_head[0]);
    if (shapes[l].k_dim < 1 || shapes[l].v_dim < 1 || shapes[l].k_dim > 4096 || shapes[l].v_dim > 4096) {
      reader.fail(ErrorCode::kInvalidData,
                  fmt::format("layer {} has heads of {} and {} elements", l, shapes[l].k_dim, shapes[l].v_dim));
    }
    reader.table().layers[l].n_kv_heads = n_kv_head[l];
  }
  return shapes;
}

void read_ffn_sizes(ModelReader& reader) {
  const std::vector<int64_t> n_ff = reader.per_layer("feed_forward_length");
  for (size_t l = 0; l < n_ff.size(); ++l) {
    if (n_ff[l] < 1 || n_ff[l] > (int64_t{1} << 24)) {
      reader.fail(ErrorCode::kInvalidData, fmt::format("layer {} has a feed-forward width of {}", l, n_ff[l]));
    }
    reader.table().layers[l].n_ff = n_ff[l];
  }
}

std::vector<bool> window_layers(ModelReader& reader, int64_t distance, int64_t window) {
  const auto n_layer = static_cast<size_t>(reader.n_layer());
  std::vector<bool> windowed(n_layer);
  const MetaValue* pattern = reader.find("attention.sliding_window_pattern");
  if (pattern != nullptr && pattern->is_array()) {
    const std::vector<uint8_t> flags = reader.flags_per_layer("attention.sliding_window_pattern");
    windowed.assign(flags.begin(), flags.end());
  } else {
    const int64_t given = reader.integer("attention.sliding_window_pattern", distance);
    for (size_t l = 0; l < n_layer; ++l) {
      windowed[l] = given > 0 && (static_cast<int64_t>(l) + 1) % given != 0;
    }
  }
  if (window == 0) {
    windowed.assign(n_layer, false);
  }
  return windowed;
}

AttentionWeights load_attention(ModelReader& reader, int32_t layer, const AttentionShape& shape,
                                const BlockOptions& options) {
  const std::string prefix = fmt::format("blk.{}.", layer);
  const int64_t n_embd = reader.n_embd();
  const int64_t n_rep = shape.n_head / shape.n_kv_head;
  const auto rows = [&](int64_t per_group) {
    return TileSlot{TileKind::kAttn, layer, CutRule::rows(CutAxis::kAttention, per_group)};
  };
  AttentionWeights w;
  w.norm = reader.vector(prefix + "attn_norm.weight", n_embd);
  const int64_t q_dim = options.query_gate ? 2 * shape.k_dim : shape.k_dim;
  w.wq = reader.weight(prefix + "attn_q", shape.n_head * q_dim, n_embd, rows(n_rep * q_dim));
  w.wk = reader.weight(prefix + "attn_k", shape.n_kv_head * shape.k_dim, n_embd, rows(shape.k_dim));
  w.wv = reader.weight(prefix + "attn_v", shape.n_kv_head * shape.v_dim, n_embd, rows(shape.v_dim));
  w.wo = reader.weight(prefix + "attn_output", n_embd, shape.n_head * shape.v_dim,
                       {TileKind::kAttn, layer, CutRule::columns(CutAxis::kAttention, n_rep * shape.v_dim)});
  if (options.qk_norm) {
    w.q_norm = reader.vector(prefix + "attn_q_norm.weight", shape.k_dim);
    w.k_norm = reader.vector(prefix + "attn_k_norm.weight", shape.k_dim);
  }
  if (options.sinks) {
    w.sinks = reader.vector(prefix + "attn_sinks.weight", shape.n_head);
  }
  if (options.post_norms) {
    w.post_norm = reader.vector(prefix + "post_attention_norm.weight", n_embd);
  }
  return w;
}

FfnWeights load_ffn(ModelReader& reader, int32_t layer, const BlockOptions& options) {
  const std::string prefix = fmt::format("blk.{}.", layer);
  const int64_t n_embd = reader.n_embd();
  const int64_t n_ff = reader.table().layers[static_cast<size_t>(layer)].n_ff;
  const TileSlot rows{TileKind::kFfn, layer, CutRule::rows(CutAxis::kFeedForward, 1)};
  FfnWeights w;
  w.norm = reader.vector(prefix + options.ffn_norm + ".weight", n_embd);
  w.gate = reader.weight(prefix + "ffn_gate", n_ff, n_embd, rows, options.ffn_scales);
  w.up = reader.weight(prefix + "ffn_up", n_ff, n_embd, rows, options.ffn_scales);
  w.down = reader.weight(prefix + "ffn_down", n_embd, n_ff,
                         {TileKind::kFfn, layer, CutRule::columns(CutAxis::kFeedForward, 1)}, options.ffn_scales);
  if (options.post_norms) {
    w.post_norm = reader.vector(prefix + "post_ffw_norm.weight", n_embd);
  }
  return w;
}

Value attention_block(Builder& b, int32_t layer, const AttentionWeights& w, const AttentionShape& shape,
                      const AttentionRule& rule, const RopeRef& rope, Value x) {
  const Value h = b.rms_norm(x, w.norm, rule.eps);  // [n_tokens, n_embd]
  Value q = b.linear(w.wq, h);                      // [n_tokens, n_head, k_dim]
  Value k = b.linear(w.wk, h);                      // [n_tokens, n_kv_head, k_dim]
  const Value v = b.linear(w.wv, h);                // [n_tokens, n_kv_head, v_dim]
  if (w.q_norm != kNoTensor) {
    q = b.rms_norm(q, w.q_norm, rule.eps, shape.k_dim);
    k = b.rms_norm(k, w.k_norm, rule.eps, shape.k_dim);
  }
  Value* const heads[] = {&q, &k};
  b.rope(rope, heads);
  const KvLayerSpec spec{shape.n_kv_head, shape.k_dim, shape.v_dim, rule.window};
  const Value a =
      b.attention(q, b.append(layer, spec, k, v), rule.scale, rule.softcap, w.sinks);  // [n_tokens, n_head, v_dim]
  const Value y = b.reduce(b.linear(w.wo, a));  // wo is cut by columns: linear gives a partial
  return w.post_norm == kNoTensor ? y : b.rms_norm(y, w.post_norm, rule.eps);
}

Value ffn_block(Builder& b, const FfnWeights& w, GluActivation activation, float eps, Value x) {
  const Value h = b.rms_norm(x, w.norm, eps);  // [n_tokens, n_embd]
  const Value gate = b.linear(w.gate, h);      // [n_tokens, n_ff]
  const Value up = b.linear(w.up, h);          // [n_tokens, n_ff]
  const Value y = b.reduce(b.linear(w.down, b.glu(activation, gate, up)));
  return w.post_norm == kNoTensor ? y : b.rms_norm(y, w.post_norm, eps);
}

void head_block(Builder& b, TensorIndex norm, const Weight& head, float eps, float softcap, Value x) {
  const Value h = b.rms_norm(b.gather_outputs(x), norm, eps);  // [n_outputs, n_embd]
  Value logits = b.linear(head, h);                            // [n_outputs, n_vocab]
  if (softcap > 0) {
    logits = b.scale(logits, 1, softcap);
  }
  b.logits(logits);
  b.embeddings(b.rms_norm(b.gather_embeddings(x), norm, eps));
}

}  // namespace tessera

#include "models/gemma.h"

#include <cmath>

#include "models/blocks.h"

namespace tessera {

Result<ModelDefinition> build_gemma(const GgufFile& file, const GemmaRule& rule) {
  ModelReader reader(file);
  const std::vector<AttentionShape> shapes = read_attention_shapes(reader);
  read_ffn_sizes(reader);
  const float eps = reader.number("attention.layer_norm_rms_epsilon");
  const int64_t window = reader.integer("attention.sliding_window", rule.default_window);
  const std::vector<bool> windowed = window_layers(reader, rule.pattern, window);
  const float attention_cap = rule.softcaps ? reader.number("attn_logit_softcapping", 50) : 0;
  const float final_cap = reader.number("final_logit_softcapping", rule.softcaps ? 30.0F : 0.0F);
  const TensorIndex embedding = reader.embedding();
  const TensorIndex output_norm = reader.vector("output_norm.weight", reader.n_embd());
  const Weight head = reader.head();

  const AttentionShape first = shapes.empty() ? AttentionShape{1, 1, 1, 1} : shapes[0];
  const RopeParams full_params = reader.rope_params(first.k_dim);
  RopeParams window_params = full_params;
  if (rule.own_window_rope) {
    window_params = RopeParams{};
    window_params.n_rot = full_params.n_rot;
    window_params.freq_base = reader.number("rope.freq_base_swa", 10000);
  }
  const RopeSetting full = make_rope(full_params);
  const RopeSetting local = make_rope(window_params);
  const TensorIndex full_freq = reader.constant("rope.inv_freq", full.inv_freq);
  const TensorIndex local_freq = reader.constant("rope.inv_freq_window", local.inv_freq);

  const BlockOptions options{.qk_norm = rule.qk_norm, .post_norms = true};
  std::vector<AttentionWeights> attention;
  std::vector<FfnWeights> ffn;
  for (int32_t l = 0; l < reader.n_layer(); ++l) {
    attention.push_back(load_attention(reader, l, shapes[static_cast<size_t>(l)], options));
    ffn.push_back(load_ffn(reader, l, options));
  }
  const float given_scale = reader.number("attention.scale", 0);
  TRY(reader.finish());

  const int64_t scaled_width =
      rule.wide_query_n_layer == reader.n_layer() ? reader.n_embd() / first.n_head : first.k_dim;
  AttentionRule attention_rule;
  attention_rule.eps = eps;
  attention_rule.scale = given_scale > 0 ? given_scale : 1 / std::sqrt(static_cast<float>(scaled_width));
  attention_rule.softcap = attention_cap;

  Builder b(reader.table(), reader.n_embd());
  const RopeRef full_rope = b.rope_table(full_freq, full.magnitude, first.k_dim, /*neox=*/true);
  const RopeRef local_rope = b.rope_table(local_freq, local.magnitude, first.k_dim, /*neox=*/true);
  Value x = b.embed(embedding, std::sqrt(static_cast<float>(reader.n_embd())));  // [n_tokens, n_embd]
  for (int32_t l = 0; l < reader.n_layer(); ++l) {
    const auto i = static_cast<size_t>(l);
    attention_rule.window = windowed[i] ? window : 0;
    const RopeRef& rope = windowed[i] ? local_rope : full_rope;
    x = b.add(x, attention_block(b, l, attention[i], shapes[i], attention_rule, rope, x));
    x = b.add(x, ffn_block(b, ffn[i], GluActivation::kGeluTanh, eps, x));
  }
  head_block(b, output_norm, head, eps, final_cap, x);
  ASSIGN_OR_RETURN(Program program, std::move(b).finish());
  ModelInfo info = reader.info();
  info.n_head = first.n_head;
  return ModelDefinition{std::move(info), std::move(reader.table()), std::move(program)};
}

}  // namespace tessera

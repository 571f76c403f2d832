#include "models/plain_transformer.h"

#include <cmath>
#include <fmt/format.h>

#include "models/blocks.h"

namespace tessera {

Result<ModelDefinition> build_plain_transformer(const GgufFile& file, const PlainRule& rule) {
  ModelReader reader(file);
  const std::vector<AttentionShape> shapes = read_attention_shapes(reader);
  read_ffn_sizes(reader);
  const int64_t n_ff = reader.n_layer() > 0 ? reader.table().layers[0].n_ff : 0;
  const ExpertShape expert_shape =
      rule.experts.has_value() ? read_expert_shape(reader, n_ff, rule.shared_expert ? n_ff : 0) : ExpertShape{};
  const float eps = reader.number("attention.layer_norm_rms_epsilon");
  const float given_scale = reader.number("attention.scale", 0);
  const TensorIndex embedding = reader.embedding();
  const TensorIndex output_norm = reader.vector("output_norm.weight", reader.n_embd());
  const Weight head = reader.head();
  const int64_t k_dim = shapes.empty() ? 1 : shapes[0].k_dim;
  const RopeSetting setting = make_rope(reader.rope_params(k_dim));
  const TensorIndex inv_freq = reader.constant("rope.inv_freq", setting.inv_freq);
  std::vector<AttentionWeights> attention;
  std::vector<FfnWeights> ffn(static_cast<size_t>(reader.n_layer()));
  std::vector<ExpertWeights> experts(static_cast<size_t>(reader.n_layer()));
  const auto is_mixture = [&](int32_t l) {
    return expert_shape.n_experts > 0 && reader.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", l));
  };
  for (int32_t l = 0; l < reader.n_layer(); ++l) {
    attention.push_back(load_attention(reader, l, shapes[static_cast<size_t>(l)], {.qk_norm = rule.qk_norm}));
    if (is_mixture(l)) {
      experts[static_cast<size_t>(l)] = load_experts(reader, l, expert_shape, *rule.experts);
    } else {
      ffn[static_cast<size_t>(l)] = load_ffn(reader, l, {.ffn_scales = rule.ffn_scales});
    }
  }
  TRY(reader.finish());

  Builder b(reader.table(), reader.n_embd());
  const RopeRef rope = b.rope_table(inv_freq, setting.magnitude, k_dim, rule.neox);
  const AttentionRule attention_rule{eps, given_scale > 0 ? given_scale : 1 / std::sqrt(static_cast<float>(k_dim)), 0,
                                     0};
  Value x = b.embed(embedding);  // [n_tokens, n_embd]
  for (int32_t l = 0; l < reader.n_layer(); ++l) {
    const auto i = static_cast<size_t>(l);
    x = b.add(x, attention_block(b, l, attention[i], shapes[i], attention_rule, rope, x));
    x = b.add(x, is_mixture(l) ? expert_block(b, l, experts[i], expert_shape, *rule.experts, eps, x)
                               : ffn_block(b, ffn[i], GluActivation::kSilu, eps, x));
  }
  head_block(b, output_norm, head, eps, 0, x);
  ASSIGN_OR_RETURN(Program program, std::move(b).finish());
  ModelInfo info = reader.info();
  info.n_head = shapes[0].n_head;
  return ModelDefinition{std::move(info), std::move(reader.table()), std::move(program)};
}

}  // namespace tessera

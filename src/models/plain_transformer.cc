#include "models/plain_transformer.h"

#include <cmath>

#include "models/blocks.h"

namespace tessera {

Result<ModelDefinition> build_plain_transformer(const GgufFile& file, const PlainRule& rule) {
  ModelReader reader(file);
  if (reader.integer("expert_count", 0) > 0) {
    reader.fail(ErrorCode::kUnsupported, "mixtures of experts are not supported yet");
  }
  const std::vector<AttentionShape> shapes = read_attention_shapes(reader);
  read_ffn_sizes(reader);
  const float eps = reader.number("attention.layer_norm_rms_epsilon");
  const float given_scale = reader.number("attention.scale", 0);
  const TensorIndex embedding = reader.embedding();
  const TensorIndex output_norm = reader.vector("output_norm.weight", reader.n_embd());
  const Weight head = reader.head();
  const int64_t k_dim = shapes.empty() ? 1 : shapes[0].k_dim;
  const RopeSetting setting = make_rope(reader.rope_params(k_dim));
  const TensorIndex inv_freq = reader.constant("rope.inv_freq", setting.inv_freq);
  std::vector<AttentionWeights> attention;
  std::vector<FfnWeights> ffn;
  for (int32_t l = 0; l < reader.n_layer(); ++l) {
    attention.push_back(load_attention(reader, l, shapes[static_cast<size_t>(l)], {.qk_norm = rule.qk_norm}));
    ffn.push_back(load_ffn(reader, l, {.ffn_scales = rule.ffn_scales}));
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
    x = b.add(x, ffn_block(b, ffn[i], GluActivation::kSilu, eps, x));
  }
  head_block(b, output_norm, head, eps, 0, x);
  ASSIGN_OR_RETURN(Program program, std::move(b).finish());
  ModelInfo info = reader.info();
  info.n_head = shapes[0].n_head;
  return ModelDefinition{std::move(info), std::move(reader.table()), std::move(program)};
}

}  // namespace tessera

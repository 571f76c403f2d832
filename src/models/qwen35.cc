// qwen35, qwen35moe, qwen3next: three gated delta nets to one gated attention layer (the Qwen3.5 family), with dense
// feed-forward layers or mixtures of experts and a shared one behind a sigmoid gate; blocks for the prediction of
// several tokens at the file's end are known and not used. Facts: docs/gguf-facts.md 2.6.

#include <cmath>

#include "models/delta_net.h"
#include "models/experts.h"

namespace tessera {
namespace {

struct LayerWeights {
  AttentionWeights attention;  // of layers without recurrent state
  DeltaWeights delta;          // of the others
  FfnWeights ffn;
  ExpertWeights experts;  // of a mixture, instead of ffn
};

constexpr ExpertRule kExpertRule{
    .normalize = true, .scales = ScaleRule::kBeforeBias, .shared_scales = ScaleRule::kBeforeBias};

struct HybridOptions {
  bool mixture = false;  // of experts, instead of dense feed-forward layers
  bool tiled = true;     // order of the value heads in the file
};

Result<ModelDefinition> build_hybrid(const GgufFile& file, const HybridOptions& options) {
  const bool mixture = options.mixture;
  ModelReader reader(file);
  reader.skip_last_layers(reader.integer("nextn_predict_layers", 0));
  const std::vector<uint8_t> recurrent = read_recurrent_layers(reader);
  const std::vector<AttentionShape> shapes = read_attention_shapes(reader);
  const RecLayerSpec spec = read_delta_spec(reader, recurrent, options.tiled);
  ExpertShape experts;
  if (mixture) {
    experts = read_expert_shape(reader, 0, 0);
    if (experts.n_experts == 0) {
      reader.fail(ErrorCode::kInvalidData, "a model of this architecture has experts");
    }
  } else {
    read_ffn_sizes(reader);
  }
  const float eps = reader.number("attention.layer_norm_rms_epsilon");
  const TensorIndex embedding = reader.embedding();
  const TensorIndex output_norm = reader.vector("output_norm.weight", reader.n_embd());
  const Weight head = reader.head();
  const int64_t k_dim = shapes.empty() ? 1 : shapes[0].k_dim;
  // A token of text has one position in all sections of the rope, so that sections do not show.
  const RopeSetting setting = make_rope(reader.rope_params(k_dim));
  const TensorIndex inv_freq = reader.constant("rope.inv_freq", setting.inv_freq);
  std::vector<LayerWeights> layers(static_cast<size_t>(reader.n_layer()));
  for (int32_t l = 0; l < reader.n_layer(); ++l) {
    LayerWeights& w = layers[static_cast<size_t>(l)];
    if (recurrent[static_cast<size_t>(l)] != 0) {
      w.delta = load_delta(reader, l, spec);
    } else {
      w.attention = load_gated_attention(reader, l, shapes[static_cast<size_t>(l)]);
    }
    if (mixture) {
      w.experts = load_experts(reader, l, experts, kExpertRule, "post_attention_norm.weight");
    } else {
      w.ffn = load_ffn(reader, l, {.ffn_scales = ScaleRule::kBeforeBias, .ffn_norm = "post_attention_norm"});
    }
  }
  TRY(reader.finish());

  Builder b(reader.table(), reader.n_embd());
  const RopeRef rope = b.rope_table(inv_freq, setting.magnitude, k_dim, /*neox=*/true);
  const AttentionRule rule{eps, 1 / std::sqrt(static_cast<float>(k_dim)), 0, 0};
  Value x = b.embed(embedding);  // [n_tokens, n_embd]
  for (int32_t l = 0; l < reader.n_layer(); ++l) {
    const auto i = static_cast<size_t>(l);
    const LayerWeights& w = layers[i];
    x = b.add(x, recurrent[i] != 0 ? delta_block(b, l, w.delta, spec, eps, x)
                                   : gated_attention_block(b, l, w.attention, shapes[i], rule, rope, x));
    x = b.add(x, mixture ? expert_block(b, l, w.experts, experts, kExpertRule, eps, x)
                         : ffn_block(b, w.ffn, GluActivation::kSilu, eps, x));
  }
  head_block(b, output_norm, head, eps, 0, x);
  ASSIGN_OR_RETURN(Program program, std::move(b).finish());
  ModelInfo info = reader.info();
  info.n_head = shapes[0].n_head;
  info.n_kv_head = shapes[0].n_kv_head;
  return ModelDefinition{std::move(info), std::move(reader.table()), std::move(program)};
}

const ArchitectureRegistration kDense{"qwen35", [](const GgufFile& file) { return build_hybrid(file, {}); }};
const ArchitectureRegistration kMixture{"qwen35moe",
                                        [](const GgufFile& file) { return build_hybrid(file, {.mixture = true}); }};
const ArchitectureRegistration kNext{
    "qwen3next", [](const GgufFile& file) { return build_hybrid(file, {.mixture = true, .tiled = false}); }};

}  // namespace
}  // namespace tessera

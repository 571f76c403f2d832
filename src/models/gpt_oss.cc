// gpt-oss: biases everywhere, attention sinks, windows on even layers, YaRN over halves, and mixtures of experts whose
// weights are the softmax of the chosen logits, with a clamped activation; post_attention_norm is the norm in front of
// the experts. Facts: docs/gguf-facts.md 2.4 to 2.6.

#include <cmath>

#include "models/blocks.h"
#include "models/experts.h"

namespace tessera {
namespace {

constexpr ExpertRule kExperts = {
    .gating = Gating::kSoftmaxOfChosen, .activation = GluActivation::kSiluClamped, .limit = 7.0F, .alpha = 1.702F};
constexpr const char* kFfnNorm = "post_attention_norm.weight";

Result<ModelDefinition> build_gpt_oss(const GgufFile& file) {
  ModelReader reader(file);
  const std::vector<AttentionShape> shapes = read_attention_shapes(reader);
  const ExpertShape experts = read_expert_shape(reader, reader.integer("feed_forward_length", 0), 0);
  if (experts.n_experts == 0) {
    reader.fail(ErrorCode::kInvalidData, "a gpt-oss model has experts");
  }
  const float eps = reader.number("attention.layer_norm_rms_epsilon");
  const int64_t window = reader.integer("attention.sliding_window");
  const std::vector<bool> windowed = window_layers(reader, 2, window);
  const TensorIndex embedding = reader.embedding();
  const TensorIndex output_norm = reader.vector("output_norm.weight", reader.n_embd());
  const Weight head = reader.head();
  const int64_t k_dim = shapes.empty() ? 1 : shapes[0].k_dim;
  const RopeSetting setting = make_rope(reader.rope_params(k_dim));
  const TensorIndex inv_freq = reader.constant("rope.inv_freq", setting.inv_freq);
  std::vector<AttentionWeights> attention;
  std::vector<ExpertWeights> ffn;
  for (int32_t l = 0; l < reader.n_layer(); ++l) {
    attention.push_back(load_attention(reader, l, shapes[static_cast<size_t>(l)], {.sinks = true}));
    ffn.push_back(load_experts(reader, l, experts, kExperts, kFfnNorm));
  }
  TRY(reader.finish());

  Builder b(reader.table(), reader.n_embd());
  const RopeRef rope = b.rope_table(inv_freq, setting.magnitude, k_dim, /*neox=*/true);
  AttentionRule rule{eps, 1 / std::sqrt(static_cast<float>(k_dim)), 0, 0};
  Value x = b.embed(embedding);  // [n_tokens, n_embd]
  for (int32_t l = 0; l < reader.n_layer(); ++l) {
    const auto i = static_cast<size_t>(l);
    rule.window = windowed[i] ? window : 0;
    x = b.add(x, attention_block(b, l, attention[i], shapes[i], rule, rope, x));
    x = b.add(x, expert_block(b, l, ffn[i], experts, kExperts, eps, x));
  }
  head_block(b, output_norm, head, eps, 0, x);
  ASSIGN_OR_RETURN(Program program, std::move(b).finish());
  ModelInfo info = reader.info();
  info.n_head = shapes[0].n_head;
  return ModelDefinition{std::move(info), std::move(reader.table()), std::move(program)};
}

const ArchitectureRegistration kRegistration{"gpt-oss", build_gpt_oss};

}  // namespace
}  // namespace tessera

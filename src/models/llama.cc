// llama: also Llama 2/3, Mistral, Mixtral, SmolLM2 and their kin. Rope over adjacent pairs; optional biases, rope_freqs
// and attention.scale; with experts, softmax over all and weights that sum to 1. Facts: docs/gguf-facts.md 2.4, 2.6.

#include "models/plain_transformer.h"

namespace tessera {
namespace {

const ArchitectureRegistration kRegistration{
    "llama", [](const GgufFile& file) {
      return build_plain_transformer(file,
                                     {.neox = false,
                                      .qk_norm = false,
                                      .ffn_scales = ScaleRule::kAfterBias,
                                      .experts = ExpertRule{.normalize = true, .scales = ScaleRule::kBeforeBias}});
    }};

}  // namespace
}  // namespace tessera

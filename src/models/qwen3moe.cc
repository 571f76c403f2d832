// qwen3moe: qwen3 whose feed-forward layers are mixtures of experts; softmax over all, weights of the chosen sum to 1.
// Facts: docs/gguf-facts.md 2.4 to 2.6.

#include "models/plain_transformer.h"

namespace tessera {
namespace {

const ArchitectureRegistration kRegistration{
    "qwen3moe", [](const GgufFile& file) {
      return build_plain_transformer(file,
                                     {.neox = true,
                                      .qk_norm = true,
                                      .ffn_scales = ScaleRule::kBeforeBias,
                                      .experts = ExpertRule{.normalize = true, .scales = ScaleRule::kBeforeBias}});
    }};

}  // namespace
}  // namespace tessera

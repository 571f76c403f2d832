// qwen2moe: qwen2 whose feed-forward layers are mixtures of experts; softmax over all, weights as they come, and a
// shared expert behind a sigmoid gate. Facts: docs/gguf-facts.md 2.4 to 2.6.

#include "models/plain_transformer.h"

namespace tessera {
namespace {

const ArchitectureRegistration kRegistration{
    "qwen2moe", [](const GgufFile& file) {
      return build_plain_transformer(file,
                                     {.neox = true, .qk_norm = false, .experts = ExpertRule{}, .shared_expert = true});
    }};

}  // namespace
}  // namespace tessera

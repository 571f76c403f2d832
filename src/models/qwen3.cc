// qwen3: rope over halves, an RMS norm on each query and key head, heads wider than n_embd / n_head.
// Facts: docs/gguf-facts.md 2.4, 2.6.

#include "models/plain_transformer.h"

namespace tessera {
namespace {

const ArchitectureRegistration kRegistration{
    "qwen3", [](const GgufFile& file) {
      return build_plain_transformer(file, {.neox = true, .qk_norm = true, .ffn_scales = ScaleRule::kBeforeBias});
    }};

}  // namespace
}  // namespace tessera

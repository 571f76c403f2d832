// qwen2: the plain transformer with rope over halves and biases on q, k and v. Facts: docs/gguf-facts.md 2.4, 2.6.

#include "models/plain_transformer.h"

namespace tessera {
namespace {

const ArchitectureRegistration kRegistration{
    "qwen2", [](const GgufFile& file) { return build_plain_transformer(file, {.neox = true, .qk_norm = false}); }};

}  // namespace
}  // namespace tessera

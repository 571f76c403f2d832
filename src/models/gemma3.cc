// gemma3: five window layers to one full layer with rope bases of their own, a norm on each query and key head; 27B
// (62 layers) scales queries by n_embd / n_head. Facts: docs/gguf-facts.md 2.6.

#include "models/gemma.h"

namespace tessera {
namespace {

const ArchitectureRegistration kRegistration{"gemma3", [](const GgufFile& file) {
                                               GemmaRule rule;
                                               rule.qk_norm = true;
                                               rule.own_window_rope = true;
                                               rule.pattern = 6;
                                               rule.default_window = 0;
                                               rule.wide_query_n_layer = 62;
                                               return build_gemma(file, rule);
                                             }};

}  // namespace
}  // namespace tessera

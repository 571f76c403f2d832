// gemma2: windows on every other layer, soft caps on attention scores and logits; 27B (46 layers) scales queries by
// n_embd / n_head. Facts: the model's published configuration.

#include "models/gemma.h"

namespace tessera {
namespace {

const ArchitectureRegistration kRegistration{"gemma2", [](const GgufFile& file) {
                                               GemmaRule rule;
                                               rule.softcaps = true;
                                               rule.pattern = 2;
                                               rule.default_window = 4096;
                                               rule.wide_query_n_layer = 46;
                                               return build_gemma(file, rule);
                                             }};

}  // namespace
}  // namespace tessera

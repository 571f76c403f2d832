#pragma once
// The plain pre-norm transformer: attention and SwiGLU, each behind an RMS norm, on one residual stream. llama, qwen2
// and qwen3 differ only in what PlainRule says.

#include "models/architecture.h"
#include "models/model_reader.h"

namespace tessera {

struct PlainRule {
  bool neox = false;     // rope pairs element i with i + n_rot / 2 instead of its neighbour
  bool qk_norm = false;  // RMS norm of each query and key head before rope
  ScaleRule ffn_scales = ScaleRule::kUnused;
};

Result<ModelDefinition> build_plain_transformer(const GgufFile& file, const PlainRule& rule);

}  // namespace tessera

#pragma once
// The plain pre-norm transformer: attention and SwiGLU, each behind an RMS norm, on one residual stream; some or all
// SwiGLU layers may be mixtures of experts. llama, qwen2, qwen3 and their kin with experts differ only in what
// PlainRule says.

#include <optional>

#include "models/architecture.h"
#include "models/experts.h"
#include "models/model_reader.h"

namespace tessera {

struct PlainRule {
  bool neox = false;     // rope pairs element i with i + n_rot / 2 instead of its neighbour
  bool qk_norm = false;  // RMS norm of each query and key head before rope
  ScaleRule ffn_scales = ScaleRule::kUnused;
  std::optional<ExpertRule> experts = std::nullopt;  // layers may be mixtures of experts
  bool shared_expert = false;                        // as wide as feed_forward_length where no key says otherwise
};

Result<ModelDefinition> build_plain_transformer(const GgufFile& file, const PlainRule& rule);

}  // namespace tessera

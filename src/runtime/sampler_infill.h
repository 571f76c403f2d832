#pragma once
// The step for filling in code (llama.cpp's "infill"), which would rather end than guess. Meant behind top-k and top-p.

#include <optional>

#include "runtime/sampler_candidates.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

/// 1. Ends of generation alone stay where three times their probability, times the number of candidates, is more than
///    that of all others: a model that might end here ends.
/// 2. Of candidates whose text begins as another's, the more probable one gets both probabilities; of the best
///    kInfillMerged only.
/// 3. Others than ends stay from a probability of 0.2 on, and then from 1 / (their number + 1) of what is left. Without
///    any, `end` is the only candidate, also where another step had dropped it; without that, the best.
/// What stays keeps its logit.
void keep_infill(Candidates& candidates, const Tokenizer& tokenizer, std::optional<int32_t> end);
inline constexpr size_t kInfillMerged = 512;

}  // namespace tessera

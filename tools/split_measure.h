#pragma once
// Measures what the split policy decides from: speeds of two placements and the time of switching between them.

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "runtime/context.h"
#include "runtime/split_policy.h"

namespace tessera {

/// The least n_ctx of a context that can be measured in.
inline constexpr int64_t kMeasurableContext = 32;

/// Reads prompts of 128, 512 and 2048 tokens, as far as the context holds them and until one takes seconds, and
/// generates a few tokens, under the first placement and the second, and again; of each the best time counts, and of
/// the switches between. Uses sequence 0, and leaves it filled, under either placement, also after an error. Errors:
/// those of Model::set_placement and Context::decode; kCancelled before the next batch or copy once `interrupted` (may
/// be null) is true. REQUIRES: n_ctx is at least kMeasurableContext.
Result<SplitMeasures> measure_splits(Model& model, Context& context, std::span<const PlacementRequest, 2> placements,
                                     const TransitionOptions& transition,
                                     const std::atomic<bool>* interrupted = nullptr);

/// What measure_splits() does in that context, for people: "2 rounds, each under both
/// splits: prompts of 128, 512 tokens, and an answer of 16".
std::string measuring_text(const Context& context);

/// Tokens per second of a short generation under the placement that holds, behind no prompt, so that it is quick: about
/// what measure_splits() would find for it. Uses sequence 0, and leaves it filled. Errors: those of Context::decode;
/// kCancelled: interrupted. REQUIRES: as there.
Result<double> measure_generation(Context& context, const std::atomic<bool>* interrupted = nullptr);

/// The measured speeds in one line for people.
std::string measures_text(const SplitMeasures& measures);

}  // namespace tessera

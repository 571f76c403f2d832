#pragma once
// --split-policy and --policy-cache: what the policy decides from.

#include <array>
#include <atomic>
#include <optional>
#include <span>
#include <vector>

#include "base/flags.h"
#include "base/log.h"
#include "base/status.h"
#include "runtime/context.h"
#include "runtime/split_policy.h"

namespace tessera {

/// Whether a switch failed because the other placement does not fit: no failure of the program.
bool lacks_room(const Status& status);

/// What these flags say together. Errors: kInvalidArgument for those that need or exclude each other.
Status check_policy_flags(const ParsedFlags& flags);

/// The placements between which the policy chooses: layer and tensor, with the shares of --tensor-split.
std::array<PlacementRequest, 2> policy_candidates(const std::vector<double>& tensor_split);

/// With --split-policy auto: the speeds of both, from the cache, or measured in the context, which is empty before and
/// afterwards, and written there. Speeds of the cache that are older than a day, or of which two short
/// generations contradict the one that holds now, are measured anew. The model keeps its placement. Nothing without
/// that flag, and where there is nothing to choose: one device, a small context, a placement that does not fit; the log
/// says so. options: as the model was loaded. Errors: those of measure_splits() but a lack of room; interrupted: as
/// there.
Result<std::optional<SplitMeasures>> measures_by_flags(const ParsedFlags& flags, const ModelOptions& options,
                                                       Context& context,
                                                       std::span<const PlacementRequest, 2> candidates,
                                                       const TransitionOptions& transition, const Log& log,
                                                       const std::atomic<bool>* interrupted = nullptr);

}  // namespace tessera

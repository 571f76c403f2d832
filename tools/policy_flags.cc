#include "policy_flags.h"

#include <fmt/format.h>

#include "policy_cache.h"
#include "split_measure.h"

namespace tessera {
namespace {

// Nothing where one of them does not fit.
Result<std::optional<SplitMeasures>> measure(Context& context, std::span<const PlacementRequest, 2> candidates,
                                             const TransitionOptions& transition, const Log& log,
                                             const std::atomic<bool>* interrupted) {
  log.detail("--split-policy auto: measuring both splits, once for this model and these devices");
  Model& model = context.model();
  const PlacementRequest before = model.placement();
  const Result<SplitMeasures> measured = measure_splits(model, context, candidates, transition, interrupted);
  TRY(context.clear());
  if (lacks_room(measured.status())) {
    log.warning(measured.status().message());
    TRY(model.set_placement(before, transition).status());
    return std::optional<SplitMeasures>();
  }
  TRY(measured.status());
  TRY(model.set_placement(before, transition).status());
  return std::optional(*measured);
}

}  // namespace

bool lacks_room(const Status& status) {
  return status.code() == ErrorCode::kDoesNotFit || status.code() == ErrorCode::kOutOfMemory;
}

Status check_policy_flags(const ParsedFlags& flags) {
  const bool is_auto = flags.get_string("split-policy") == "auto";
  if (is_auto && flags.get_string("split-mode") == "none") {
    return {ErrorCode::kInvalidArgument,
            "--split-policy auto chooses between layer and tensor; --split-mode says with which it begins"};
  }
  if (flags.given("policy-cache") && !is_auto) {
    return {ErrorCode::kInvalidArgument, "--policy-cache needs --split-policy auto"};
  }
  return {};
}

std::array<PlacementRequest, 2> policy_candidates(const std::vector<double>& tensor_split) {
  return {PlacementRequest{"layer", tensor_split}, PlacementRequest{"tensor", tensor_split}};
}

Result<std::optional<SplitMeasures>> measures_by_flags(const ParsedFlags& flags, const ModelOptions& options,
                                                       Context& context,
                                                       std::span<const PlacementRequest, 2> candidates,
                                                       const TransitionOptions& transition, const Log& log,
                                                       const std::atomic<bool>* interrupted) {
  if (flags.get_string("split-policy") != "auto") {
    return std::optional<SplitMeasures>();
  }
  if (context.model().device_use().size() < 2) {
    log.detail("--split-policy auto: with one device there is nothing to choose");
    return std::optional<SplitMeasures>();
  }
  if (context.options().n_ctx < kMeasurableContext) {
    log.detail("--split-policy auto: the context is too small to measure in; the placement stays");
    return std::optional<SplitMeasures>();
  }
  const std::string path = flags.given("policy-cache") ? flags.get_string("policy-cache") : default_policy_cache();
  const std::string key = policy_key(context, options);
  std::optional<SplitMeasures> measures = read_policy_cache(path, key, log);
  if (measures) {
    log.detail(fmt::format("--split-policy auto: speeds of both splits are in {}", path));
  } else {
    ASSIGN_OR_RETURN(measures, measure(context, candidates, transition, log, interrupted));
    if (measures) {
      if (const Status written = write_policy_cache(path, key, *measures); !written.ok()) {
        log.warning(fmt::format("{}; the speeds will be measured again", written.message()));
      }
    }
  }
  if (measures) {
    log.detail(measures_text(*measures));
  }
  return measures;
}

}  // namespace tessera

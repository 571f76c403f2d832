#include "policy_flags.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

#include "base/units.h"
#include "policy_cache.h"
#include "split_measure.h"

namespace tessera {
namespace {

// Nothing where one of them does not fit.
Result<std::optional<SplitMeasures>> measure(Context& context, std::span<const PlacementRequest, 2> candidates,
                                             const TransitionOptions& transition, const Log& log,
                                             const std::atomic<bool>* interrupted) {
  const auto begin = std::chrono::steady_clock::now();
  log.info(fmt::format("--split-policy auto: measuring both splits first, in {}", measuring_text(context)));
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
  log.info(fmt::format("--split-policy auto: measured in {:.1f} s",
                       ms_between(begin, std::chrono::steady_clock::now()) / 1000));
  return std::optional(*measured);
}

int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Why the speeds of an entry cannot be relied on; empty where they can. Generates a few tokens under the placement that
// holds: what was measured while the machine had other work, or not, is found by that.
Result<std::string> doubt(const PolicyEntry& entry, Context& context, const Log& log,
                          const std::atomic<bool>* interrupted) {
  if (is_out_of_date(entry, unix_time())) {
    return std::string("not of the last day");
  }
  const std::string now = context.model().placement().split_mode;
  const auto split = std::ranges::find(entry.measures.splits, now, &SplitSpeeds::split_mode);
  if (!entry.made_s || split == entry.measures.splits.end()) {
    return std::string();
  }
  const double cached = generation_speed(*split, 1);
  log.info("--split-policy auto: generating a few tokens, to see whether the speeds measured before still hold");
  double measured = 0;
  for (int look = 0; look < 2; ++look) {  // a pause of the machine spoils one
    const Result<double> speed = measure_generation(context, interrupted);
    TRY(context.clear());
    TRY(speed.status());
    measured = *speed;
    if (!is_another_speed(measured, cached)) {
      return std::string();
    }
  }
  return fmt::format("{} generates {:.1f} tokens/s now, not {:.1f}", now, measured, cached);
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
  const std::optional<PolicyEntry> entry = read_policy_cache(path, key, log);
  std::optional<SplitMeasures> measures;
  if (entry) {
    ASSIGN_OR_RETURN(const std::string why_not, doubt(*entry, context, log, interrupted));
    if (why_not.empty()) {
      log.detail(
          fmt::format("--split-policy auto: speeds of both splits are in {}; without it they are measured", path));
      measures = entry->measures;
    } else {
      log.info(fmt::format("--split-policy auto: the speeds in {} do not hold: {}", path, why_not));
    }
  }
  if (!measures) {
    ASSIGN_OR_RETURN(measures, measure(context, candidates, transition, log, interrupted));
    if (measures) {
      if (const Status written = write_policy_cache(path, key, {*measures, unix_time()}); !written.ok()) {
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

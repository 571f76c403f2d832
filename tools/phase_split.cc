#include "phase_split.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "common.h"
#include "fit_flags.h"
#include "policy_flags.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFirstGuess = 256;  // tokens of an answer, before there was one and without --predict

}  // namespace

Status check_phase_split(const ParsedFlags& flags) {
  if (flags.given("prefill-tensor-split") && !flags.given("prefill-split-mode")) {
    return {ErrorCode::kInvalidArgument, "--prefill-tensor-split needs --prefill-split-mode"};
  }
  if (flags.get_string("split-policy") == "auto" && flags.given("prefill-split-mode")) {
    return {ErrorCode::kInvalidArgument,
            "--split-policy auto chooses the placement of prompts; leave --prefill-split-mode out"};
  }
  return check_policy_flags(flags);
}

PhaseSplit::PhaseSplit(const ParsedFlags& flags, const Log& log)
    : flags_(flags), log_(log), switches_(flags.given("prefill-split-mode")) {
  transition_.staging_bytes = flags.get_bytes("transition-staging");
  answer_ = {flags.get_string("split-mode"), flags.get_float_list("tensor-split")};
  prompt_ = answer_;
  if (switches_) {
    prompt_.split_mode = flags.get_string("prefill-split-mode");
  }
  if (flags.given("prefill-tensor-split")) {
    prompt_.tensor_split = flags.get_float_list("prefill-tensor-split");
  }
}

// With --fit both placements get what lets each of them fit.
Status PhaseSplit::fit(ModelOptions& options) {
  std::vector<FitMode> modes = {{prompt_.split_mode, prompt_.tensor_split}};
  if (switches_) {
    modes.push_back({answer_.split_mode, answer_.tensor_split});
  }
  ASSIGN_OR_RETURN(Fit fitting, fit_by_flags(flags_, options, modes, true, log_));
  options = std::move(fitting.model);
  prompt_ = {fitting.modes.front().split_mode, fitting.modes.front().tensor_split};
  answer_ = {fitting.modes.back().split_mode, fitting.modes.back().tensor_split};
  return {};
}

Result<std::shared_ptr<Model>> PhaseSplit::load(ModelOptions& options) {
  TRY(fit(options));
  options_ = options;
  ModelOptions first = options;
  first.split_mode = prompt_.split_mode;
  first.tensor_split = prompt_.tensor_split;
  Result<std::shared_ptr<Model>> model = load_model(first, log_);
  if (switches_ && lacks_room(model.status())) {
    log_.warning(fmt::format("{} (under -psm {}); prompts are read under the {} placement too",
                             model.status().message(), prompt_.split_mode, answer_.split_mode));
    switches_ = false;
    first.split_mode = answer_.split_mode;
    first.tensor_split = answer_.tensor_split;
    model = load_model(first, log_);
  }
  return model;
}

Status PhaseSplit::prepare(Model& model, Context& context) {
  model_ = &model;
  if (flags_.get_string("split-policy") == "auto") {
    candidates_ = policy_candidates(answer_.tensor_split);
    ASSIGN_OR_RETURN(measures_, measures_by_flags(flags_, options_, context, candidates_, transition_, log_));
    switches_ = is_auto();
  }
  return {};
}

void PhaseSplit::add_hooks(GenerateHooks& hooks) {
  if (!switches_) {
    return;
  }
  hooks.on_begin = [this](int64_t n_lacking, int64_t n_cached) { return begin(n_lacking, n_cached); };
  hooks.on_prompt = [this, before = std::move(hooks.on_prompt)]() -> Status {
    if (before) {
      TRY(before());
    }
    return go_to(answer_, "generation");
  };
}

Status PhaseSplit::begin(int64_t n_lacking, int64_t n_cached) {
  if (is_auto()) {
    SplitCase request;
    request.now = model_->placement().split_mode == candidates_[0].split_mode ? 0 : 1;
    request.n_prompt = n_lacking;
    request.n_before = n_cached;
    const int64_t limit = flags_.get_int("predict");
    request.n_predict = n_answers_ > 0 ? n_answered_tokens_ / n_answers_ : kFirstGuess;
    request.n_predict = limit >= 0 ? std::min(limit, n_answers_ > 0 ? request.n_predict : limit) : request.n_predict;
    const SplitDecision decision = decide_split(*measures_, request);
    log_.detail(decision_text(*measures_, request, decision));
    prompt_ = candidates_[decision.prefill];
    answer_ = candidates_[decision.generation];
  }
  return go_to(prompt_, "prompt");
}

Status PhaseSplit::go_to(const PlacementRequest& request, const char* phase) {
  const PlacementRequest now = model_->placement();
  if (!switches_ || (now.split_mode == request.split_mode && now.tensor_split == request.tensor_split)) {
    return {};
  }
  Result<TransitionReport> report = model_->set_placement(request, transition_);
  if (lacks_room(report.status())) {
    log_.warning(report.status().message());
    switches_ = false;
    return {};
  }
  TRY(report.status());
  log_.detail(
      fmt::format("the {} follows under the {} placement, shares {:.2f}: {:.1f} MiB changed their device in {:.1f} ms",
                  phase, report->to, fmt::join(report->shares, "/"), mib(report->moved_bytes), report->total_ms));
  done_.push_back({phase, std::move(*report)});
  return {};
}

void PhaseSplit::answered(const Generation& generation) {
  ++n_answers_;
  n_answered_tokens_ += generation.timings.predicted_n;
}

std::string PhaseSplit::switch_line() {
  const size_t n = done_.size() - n_told_;
  double ms = 0;
  uint64_t bytes = 0;
  for (; n_told_ < done_.size(); ++n_told_) {
    ms += done_[n_told_].report.total_ms;
    bytes += done_[n_told_].report.moved_bytes;
  }
  return n == 0 ? std::string()
                : fmt::format("switches    {:6}         {:9.1f} ms  {:8.1f} MiB between devices\n", n, ms, mib(bytes));
}

std::string PhaseSplit::switches_json() const {
  Json switches = Json::array();
  for (const auto& [phase, report] : done_) {
    switches.push_back({{"phase", phase},
                        {"from", report.from},
                        {"to", report.to},
                        {"shares", report.shares},
                        {"ms", report.total_ms},
                        {"moved_bytes", report.moved_bytes},
                        {"local_bytes", report.local_bytes},
                        {"peak_bytes", report.peak_bytes}});
  }
  return switches.dump();
}

}  // namespace tessera

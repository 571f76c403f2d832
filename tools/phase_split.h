#pragma once
// -psm, -sm and --split-policy of `run` and `chat`: under which placement a prompt is read, and under which its answer
// is generated.
//
// A placement that does not fit is no failure: it is said with the bytes that lack, and the other one does both from
// then on. Any other error of a switch is the command's.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/flags.h"
#include "base/log.h"
#include "base/status.h"
#include "runtime/context.h"
#include "runtime/generate.h"
#include "runtime/split_policy.h"

namespace tessera {

/// What these flags say together. Errors: kInvalidArgument for those that need or exclude each other.
Status check_phase_split(const ParsedFlags& flags);

/// Use: load(), then prepare() with the empty context, then add_hooks() for each generation and answered() after it.
/// Flags and log outlive it. Of one thread.
class PhaseSplit {
 public:
  PhaseSplit(const ParsedFlags& flags, const Log& log);

  /// Loads the model under the placement of prompts; where that does not fit, under that of answers. --fit may change
  /// `options` and both placements before.
  Result<std::shared_ptr<Model>> load(ModelOptions& options);

  /// With --split-policy auto: finds the speeds of both splits in the cache, or measures them in the context, which is
  /// empty before and afterwards. Else it does nothing. Both outlive this.
  Status prepare(Model& model, Context& context);

  /// Makes a generation switch before its prompt is read and before it is answered. What hooks.on_prompt was is called
  /// first. The hooks refer to this.
  void add_hooks(GenerateHooks& hooks);
  /// What a generation was like: the policy expects the next answer to be as long as those so far.
  void answered(const Generation& generation);

  /// One line on the switches since the last call; empty when there were none.
  std::string switch_line();
  /// [{"phase", "from", "to", "shares": [...], "ms", "moved_bytes", "local_bytes", "peak_bytes": [...]}, ...], of all.
  [[nodiscard]] std::string switches_json() const;

 private:
  struct Switch {
    const char* phase;
    TransitionReport report;
  };

  [[nodiscard]] bool is_auto() const { return measures_.has_value(); }
  Status fit(ModelOptions& options);
  Status begin(int64_t n_lacking, int64_t n_cached);
  Status go_to(const PlacementRequest& request, const char* phase);

  const ParsedFlags& flags_;
  const Log& log_;
  TransitionOptions transition_;
  PlacementRequest prompt_;                // where prompts are read
  PlacementRequest answer_;                // where answers are generated
  bool switches_;                          // the two may differ
  ModelOptions options_;                   // of load(), as the command line has them
  Model* model_ = nullptr;                 // from prepare() on
  std::optional<SplitMeasures> measures_;  // of candidates_; nothing: no policy decides
  std::array<PlacementRequest, 2> candidates_;
  int64_t n_answers_ = 0;
  int64_t n_answered_tokens_ = 0;
  std::vector<Switch> done_;
  size_t n_told_ = 0;  // of done_
};

}  // namespace tessera

#pragma once
// The placement of a model that is being served: switches that somebody asks for while requests run, those that a
// policy wants, and what became of them.
//
// A switch comes between two calls of the model's contexts (Model::set_placement): requests in flight wait for it and
// go on. One at a time. Those that are asked for queue, and run on a thread of this object's own; nobody who asks is
// held up. The policy's run on the thread that calls before_step(). What somebody asks for holds: it ends the policy,
// until that is asked for again.
//
// Any thread may call anything, before_step() apart, which is one thread's.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "runtime/engine.h"
#include "runtime/placement_view.h"
#include "runtime/serving_load.h"
#include "runtime/split_policy.h"

namespace tessera {

/// A switch that was done, or tried.
struct SwitchRecord {
  std::string from, to;     // split modes
  Status status;            // why it failed; then the placement was left as it was
  double waited_ms = 0;     // from when it was asked for until it had its turn, or failed
  TransitionReport report;  // of a switch that was done
  bool by_policy = false;
};

struct SwitchTotals {
  uint64_t n_switches = 0;  // done
  uint64_t n_failed = 0;
  double seconds = 0;  // of those done, without waiting
  uint64_t moved_bytes = 0;
  std::optional<SwitchRecord> last;
};

/// What is asked for: a placement, or that the policy begins or ends.
struct PlacementWish {
  std::optional<PlacementRequest> placement = {};
  std::optional<bool> policy = {};
  double deadline_s = 0;  // from now on; 0: none
};

/// How the policy stands.
struct PolicyView {
  bool is_on = false;
  std::optional<SplitMeasures> measures;   // nothing: there is no policy to be switched on
  std::string phase;                       // phase_name() of phase_policy.h
  std::array<double, 2> caution = {1, 1};  // PhasePolicy::caution()
  int64_t phase_ms = 0;
  std::string why;  // of the last decision
};

class LivePlacement {
 public:
  /// Starts the thread. The model's contexts are open: the view counts what they hold. Errors: those of
  /// placement_view(); kOutOfMemory.
  static Result<std::unique_ptr<LivePlacement>> start(std::shared_ptr<Model> model, const TransitionOptions& transition,
                                                      const Log& log = {});
  /// As stop(). REQUIRES: not from a Done.
  ~LivePlacement();
  LivePlacement(const LivePlacement&) = delete;
  LivePlacement& operator=(const LivePlacement&) = delete;

  /// Switches the policy on. placements[i] is that of measures.splits[i]. REQUIRES: before the first before_step().
  void set_policy(SplitMeasures measures, std::array<PlacementRequest, 2> placements);

  /// Hears what became of a wish, on this object's thread; null: it needed no switch.
  using Done = std::function<void(const Status& status, const SwitchRecord* record)>;
  /// Queues a wish; done is called once if this is ok. Errors of this: kBusy (too many wait), kUnsupported (no policy
  /// to begin), kCancelled (after stop()). Of the wish: those of Model::set_placement(), kCancelled by stop().
  Status ask(PlacementWish wish, Done done);

  /// For ServingOptions::before_step.
  ReadingPace before_step(const ServingLoad& load);

  /// As of the last switch; waits for nothing.
  [[nodiscard]] std::shared_ptr<const PlacementView> view() const;
  [[nodiscard]] SwitchTotals totals() const;
  [[nodiscard]] PolicyView policy() const;

  /// Undoes a switch that runs, and does no more: wishes that wait end with kCancelled. All Done calls come before it
  /// returns. REQUIRES: not from a Done.
  void stop();

 private:
  class Impl;
  explicit LivePlacement(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera

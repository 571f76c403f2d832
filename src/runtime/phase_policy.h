#pragma once
// In which split a server should do its next steps: prompts together under one placement, answers under another, where
// measured speeds say that this pays for the switches. Staying is the normal answer.
//
// A pure state machine: no thread, no clock (times are arguments), no device. The caller asks before each step,
// switches or does not, and says how long it took. Of one thread.
//
// A *reading phase* begins when the prompts that are being read are so long together that reading them under the split
// that reads faster, and going back, takes less time than staying (split_policy.h). While it lasts, prompts get whole
// steps; everybody else gets one token in each. It ends when they are read, or after phase_us() while others generate;
// in the second case prompts wait for as long again under the split that generates faster. So no request is held up
// for longer, whatever comes.
//
// Hysteresis: a split counts what it earns, by the measured speeds and the work that was really done there. One that is
// left before it has earned the way to it makes the next switch to it twice as hard to justify, up to 64 times; a stay
// that earned it, and each minute without a switch, halves that. Requests that always end sooner than expected can thus
// cost only a few switches.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/serving_load.h"
#include "runtime/split_policy.h"

namespace tessera {

class PhasePolicy {
 public:
  /// now: the split that holds, an index into measures.splits.
  PhasePolicy(SplitMeasures measures, size_t now);

  struct Advice {
    size_t split = 0;  // to do the step in
    ReadingPace pace = ReadingPace::kShared;
  };
  /// For the step that `load` tells of. Where the split is another than now(), switch, and say so with switched().
  Advice advise(const ServingLoad& load, int64_t now_us);
  /// The model is under splits[split] since now_us; going there took so long, which is what the next such switch is
  /// expected to take.
  void switched(size_t split, double seconds, int64_t now_us);

  [[nodiscard]] size_t now() const { return now_; }
  [[nodiscard]] const SplitMeasures& measures() const { return measures_; }
  /// Longest that a phase holds others up: twenty times the way there and back, at least two seconds, at most ten.
  [[nodiscard]] int64_t phase_us() const;
  /// By split: how many times the time of a switch to it must be won.
  [[nodiscard]] const std::array<double, 2>& caution() const { return caution_; }
  /// "free", "reading" or "waiting": for prompts.
  [[nodiscard]] std::string_view phase_name() const;
  [[nodiscard]] bool has_decided() const { return has_decided_; }
  /// One sentence on the last decision; empty: there was none.
  [[nodiscard]] std::string why() const;

 private:
  enum class Phase : uint8_t { kFree, kReading, kHolding };

  void count_last_step();
  void calm(int64_t now_us);
  SplitDecision decide(const ServingLoad& load, int64_t n_prompt);
  Advice choose(const ServingLoad& load, int64_t now_us);
  Advice end_reading(const ServingLoad& load, int64_t now_us);
  void set_caution(size_t split, double caution);

  SplitMeasures measures_;
  SplitMeasures cautious_;  // the same, each switch `caution_` times as long
  size_t now_;
  Phase phase_ = Phase::kFree;
  int64_t phase_end_us_ = 0;
  ReadingPace held_pace_ = ReadingPace::kShared;  // while kHolding
  std::array<double, 2> caution_ = {1, 1};
  int64_t last_change_us_ = 0;  // of the split or the caution
  bool has_switched_ = false;
  double cost_s_ = 0;    // of coming to this split
  double earned_s_ = 0;  // by being here and not in the other
  ServingLoad last_;     // step that was advised on: it is done by the next advice
  SplitCase case_;       // of the last decision
  SplitDecision decision_;
  bool has_decided_ = false;
};

}  // namespace tessera

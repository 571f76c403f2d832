#include "runtime/phase_policy.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tessera {
namespace {

constexpr double kMostCaution = 64;
constexpr int64_t kCalm_us = 60'000'000;
constexpr int64_t kShortestPhase_us = 2'000'000;
constexpr int64_t kLongestPhase_us = 10'000'000;
constexpr double kPhaseTimes = 20;  // the switches there and back: a twentieth of the time at most goes into them

// Seconds of a step's work in a split. What generates beside a prompt rides in its batch, and costs next to nothing.
double step_seconds(const SplitSpeeds& speeds, const ServingLoad& load) {
  if (load.step_prompt > 0) {
    return prefill_seconds(speeds, load.step_prompt, load.n_before);
  }
  const auto n = static_cast<double>(load.step_generated);
  return load.step_generated > 0 ? n / generation_speed(speeds, load.step_generated) : 0;
}

}  // namespace

PhasePolicy::PhasePolicy(SplitMeasures measures, size_t now)
    : measures_(std::move(measures)), cautious_(measures_), now_(now) {
  CHECK(now < measures_.splits.size());
}

int64_t PhasePolicy::phase_us() const {
  const double seconds = std::min(kPhaseTimes * (measures_.switch_s[0] + measures_.switch_s[1]), 1e6);
  return std::clamp(static_cast<int64_t>(seconds * 1e6), kShortestPhase_us, kLongestPhase_us);
}

std::string_view PhasePolicy::phase_name() const {
  switch (phase_) {
    case Phase::kReading: return "reading";
    case Phase::kHolding: return held_pace_ == ReadingPace::kNone ? "waiting" : "free";
    case Phase::kFree: break;
  }
  return "free";
}

std::string PhasePolicy::why() const {
  return has_decided_ ? decision_text(cautious_, case_, decision_) : std::string();
}

PhasePolicy::Advice PhasePolicy::advise(const ServingLoad& load, int64_t now_us) {
  count_last_step();
  last_ = load;
  calm(now_us);
  const bool over = now_us >= phase_end_us_;
  if (phase_ == Phase::kReading) {
    const bool goes_on = load.n_prompt > 0 && (load.n_generating == 0 || !over);
    return goes_on ? Advice{now_, ReadingPace::kWhole} : end_reading(load, now_us);
  }
  if (phase_ == Phase::kHolding && load.n_generating > 0 && !over) {
    return {now_, held_pace_};
  }
  phase_ = Phase::kFree;
  return choose(load, now_us);
}

PhasePolicy::Advice PhasePolicy::choose(const ServingLoad& load, int64_t now_us) {
  if (load.n_reading + load.n_generating == 0) {
    return {now_, ReadingPace::kShared};
  }
  const SplitDecision decision = decide(load, load.n_prompt);
  if (load.n_prompt == 0 || decision.prefill == decision.generation) {
    return {decision.generation, ReadingPace::kShared};
  }
  phase_ = Phase::kReading;
  phase_end_us_ = now_us + phase_us();
  return {decision.prefill, ReadingPace::kWhole};
}

PhasePolicy::Advice PhasePolicy::end_reading(const ServingLoad& load, int64_t now_us) {
  const size_t split = load.n_reading + load.n_generating > 0 ? decide(load, 0).generation : now_;
  phase_ = load.n_prompt > 0 ? Phase::kHolding : Phase::kFree;
  phase_end_us_ = now_us + phase_us();
  // Under the split that reads worse, prompts had better wait; where nothing changes, they share.
  held_pace_ = split != now_ ? ReadingPace::kNone : ReadingPace::kShared;
  return {split, load.n_prompt > 0 ? held_pace_ : ReadingPace::kShared};
}

// Prompts are read in whole batches, as one of their length together would be; the rest of one is no short prompt.
SplitDecision PhasePolicy::decide(const ServingLoad& load, int64_t n_prompt) {
  const int64_t n_seqs = load.n_reading + load.n_generating;
  case_ = {.now = now_,
           .n_prompt = n_prompt,
           .n_predict = load.n_predict / n_seqs,
           .n_seqs = n_seqs,
           .n_readers = 1,
           .n_before = load.n_before};
  decision_ = decide_split(cautious_, case_);
  has_decided_ = true;
  return decision_;
}

void PhasePolicy::count_last_step() {
  earned_s_ += step_seconds(measures_.splits[1 - now_], last_) - step_seconds(measures_.splits[now_], last_);
}

void PhasePolicy::calm(int64_t now_us) {
  if (now_us - last_change_us_ < kCalm_us) {
    return;
  }
  last_change_us_ = now_us;
  for (const size_t split : {0U, 1U}) {
    set_caution(split, caution_[split] / 2);
  }
}

void PhasePolicy::switched(size_t split, double seconds, int64_t now_us) {
  CHECK(split < measures_.splits.size());
  if (has_switched_) {
    set_caution(now_, earned_s_ >= cost_s_ ? caution_[now_] / 2 : caution_[now_] * 2);
  }
  measures_.switch_s[1 - split] = std::max(seconds, 1e-6);
  set_caution(split, caution_[split]);
  has_switched_ = true;
  cost_s_ = seconds;
  earned_s_ = 0;
  now_ = split;
  last_change_us_ = now_us;
}

void PhasePolicy::set_caution(size_t split, double caution) {
  caution_[split] = std::clamp(caution, 1.0, kMostCaution);
  cautious_.switch_s[1 - split] = measures_.switch_s[1 - split] * caution_[split];
}

}  // namespace tessera

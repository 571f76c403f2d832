// The policy against a simulated server: does it pay, does it flap, does anybody starve.

#include "runtime/phase_policy.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr size_t kLayer = 0;
constexpr size_t kTensor = 1;
constexpr int64_t kStepTokens = 512;
constexpr int64_t kSharedTokens = 128;

// Layer reads more than twice as fast, tensor generates twice as fast.
SplitMeasures two_sided(double switch_s) {
  SplitMeasures m;
  m.splits[kLayer] = {"layer", {{512, 10000}}, {{1, 50}, {8, 300}}};
  m.splits[kTensor] = {"tensor", {{512, 4000}}, {{1, 100}, {8, 600}}};
  m.switch_s = {switch_s, switch_s};
  return m;
}

struct Request {
  double arrival_s = 0;
  int64_t n_prompt = 0;
  int64_t n_answer = 0;
  int64_t n_claimed = 0;  // tokens that it seems to be about to generate, beyond n_answer
  int64_t n_read = 0;
  int64_t n_generated = 0;
  double last_s = 0;  // when it last got something
};

struct Outcome {
  double total_s = 0;
  int n_switches = 0;
  double longest_gap_s = 0;   // without a token, for one that generates
  double longest_wait_s = 0;  // in which no prompt was read, though there were some
};

// A server that takes exactly the measured times. Without a policy it stays in `split`.
class Simulation {
 public:
  Simulation(const SplitMeasures& truth, size_t split, std::vector<Request> requests)
      : truth_(truth), split_(split), requests_(std::move(requests)) {}

  Outcome run(PhasePolicy* policy) {
    for (next_ = 0; next_ < requests_.size() || !running_.empty();) {
      admit();
      const int64_t n_shared = pace_ == ReadingPace::kNone    ? 0
                               : pace_ == ReadingPace::kWhole ? kStepTokens
                                                              : kSharedTokens;
      std::vector<int64_t> pieces = compose(n_shared);
      const ServingLoad load = load_of(pieces);
      if (policy != nullptr) {
        follow(*policy, load);
      }
      carry_out(load, pieces);
    }
    outcome_.total_s = now_s_;
    return outcome_;
  }

 private:
  [[nodiscard]] int64_t now_us() const { return static_cast<int64_t>(now_s_ * 1e6); }
  static bool reads(const Request& r) { return r.n_read < r.n_prompt; }

  void admit() {
    if (running_.empty()) {
      now_s_ = last_read_s_ = std::max(now_s_, requests_[next_].arrival_s);
    }
    for (; next_ < requests_.size() && requests_[next_].arrival_s <= now_s_; ++next_) {
      running_.push_back(requests_[next_]);
      running_.back().last_s = now_s_;
    }
  }

  std::vector<int64_t> compose(int64_t n_shared) {
    std::vector<int64_t> pieces;
    const auto n_generating = static_cast<int64_t>(std::ranges::count_if(running_, [](auto& r) { return !reads(r); }));
    int64_t n_free = n_generating > 0 ? std::min(n_shared, kStepTokens - n_generating) : kStepTokens;
    for (const Request& r : running_) {
      pieces.push_back(reads(r) ? std::min(n_free, r.n_prompt - r.n_read) : 1);
      n_free -= reads(r) ? pieces.back() : 0;
    }
    return pieces;
  }

  [[nodiscard]] ServingLoad load_of(const std::vector<int64_t>& pieces) const {
    ServingLoad load;
    for (size_t i = 0; i < running_.size(); ++i) {
      const Request& r = running_[i];
      load.n_reading += reads(r) ? 1 : 0;
      load.n_prompt += r.n_prompt - r.n_read;
      load.n_before += reads(r) ? r.n_read : 0;
      load.n_generating += reads(r) ? 0 : 1;
      load.n_predict += r.n_claimed + r.n_answer - r.n_generated;
      (reads(r) ? load.step_prompt : load.step_generated) += pieces[i];
    }
    return load;
  }

  void follow(PhasePolicy& policy, const ServingLoad& load) {
    const PhasePolicy::Advice advice = policy.advise(load, now_us());
    if (advice.split != split_) {
      now_s_ += truth_.switch_s[split_];
      policy.switched(advice.split, truth_.switch_s[split_], now_us());
      split_ = advice.split;
      ++outcome_.n_switches;
    }
    pace_ = advice.pace;
  }

  void carry_out(const ServingLoad& load, const std::vector<int64_t>& pieces) {
    const SplitSpeeds& speeds = truth_.splits[split_];
    now_s_ += load.step_prompt > 0
                  ? prefill_seconds(speeds, load.step_prompt, load.n_before)
                  : static_cast<double>(load.step_generated) / generation_speed(speeds, load.step_generated);
    if (load.step_prompt > 0 || load.n_reading == 0) {
      outcome_.longest_wait_s = std::max(outcome_.longest_wait_s, load.step_prompt > 0 ? now_s_ - last_read_s_ : 0);
      last_read_s_ = now_s_;
    }
    for (size_t i = 0; i < running_.size(); ++i) {
      Request& r = running_[i];
      const bool reading = reads(r);
      (reading ? r.n_read : r.n_generated) += pieces[i];
      outcome_.longest_gap_s = reading ? outcome_.longest_gap_s : std::max(outcome_.longest_gap_s, now_s_ - r.last_s);
      r.last_s = now_s_;
    }
    std::erase_if(running_, [](const Request& r) { return r.n_generated >= r.n_answer; });
  }

  const SplitMeasures truth_;
  size_t split_;
  ReadingPace pace_ = ReadingPace::kShared;
  std::vector<Request> requests_;
  size_t next_ = 0;
  std::vector<Request> running_;
  double now_s_ = 0;
  double last_read_s_ = 0;
  Outcome outcome_;
};

Outcome with_policy(const SplitMeasures& truth, size_t begin, const std::vector<Request>& requests) {
  PhasePolicy policy(truth, begin);
  return Simulation(truth, begin, requests).run(&policy);
}

double staying_s(const SplitMeasures& truth, size_t split, const std::vector<Request>& requests) {
  return Simulation(truth, split, requests).run(nullptr).total_s;
}

std::vector<Request> burst(int n, int64_t n_prompt, int64_t n_answer, double at_s = 0) {
  return std::vector<Request>(static_cast<size_t>(n), {.arrival_s = at_s, .n_prompt = n_prompt, .n_answer = n_answer});
}

TEST(PhasePolicy, ABurstIsReadInOneSplitAndAnsweredInTheOther) {
  const SplitMeasures truth = two_sided(0.05);
  const std::vector<Request> requests = burst(8, 2000, 256);
  for (const size_t begin : {kLayer, kTensor}) {
    const Outcome outcome = with_policy(truth, begin, requests);
    EXPECT_EQ(outcome.n_switches, begin == kLayer ? 1 : 2);
    EXPECT_LT(outcome.total_s, 0.9 * staying_s(truth, kLayer, requests));
    EXPECT_LT(outcome.total_s, 0.9 * staying_s(truth, kTensor, requests));
  }
}

// Tensor reads the beginning of a prompt faster, layer what comes behind it: the rest of a long prompt is not read as a
// short one would be.
TEST(PhasePolicy, TheRestOfALongPromptIsNoShortPrompt) {
  SplitMeasures truth;
  truth.splits[kLayer] = {"layer", {{512, 543.1}, {2048, 425.4}}, {{1, 70}}};
  truth.splits[kTensor] = {"tensor", {{512, 784}, {2048, 395.6}}, {{1, 70}}};
  truth.switch_s = {0.01, 0.01};
  for (const int64_t n_prompt : {1804, 2704, 5000}) {
    EXPECT_EQ(with_policy(truth, kLayer, burst(1, n_prompt, 64)).n_switches, 0) << n_prompt;
  }
}

TEST(PhasePolicy, BurstAfterBurst) {
  const SplitMeasures truth = two_sided(0.05);
  std::vector<Request> requests;
  for (int i = 0; i < 20; ++i) {
    std::ranges::copy(burst(8, 2000, 256, 12.0 * i), std::back_inserter(requests));
  }
  const Outcome outcome = with_policy(truth, kTensor, requests);
  EXPECT_EQ(outcome.n_switches, 40);
}

TEST(PhasePolicy, WhereItDoesNotPayItStays) {
  for (const double switch_s : {0.05, 30.0}) {
    const Outcome small = with_policy(two_sided(switch_s), kTensor, burst(2, 100, 20));
    EXPECT_EQ(small.n_switches, 0) << switch_s;
  }
  EXPECT_EQ(with_policy(two_sided(30), kTensor, burst(8, 2000, 256)).n_switches, 0);
  SplitMeasures equal = two_sided(0.05);
  equal.splits[kLayer].prefill = equal.splits[kTensor].prefill;
  equal.splits[kLayer].generation = equal.splits[kTensor].generation;
  EXPECT_EQ(with_policy(equal, kLayer, burst(8, 2000, 256)).n_switches, 0);
}

TEST(PhasePolicy, TheBetterSplitIsGoneToOnce) {
  SplitMeasures truth = two_sided(0.05);
  truth.splits[kTensor].prefill = {{512, 20000}};
  std::vector<Request> requests;
  for (int i = 0; i < 50; ++i) {
    std::ranges::copy(burst(4, 2000, 100, 2.0 * i), std::back_inserter(requests));
  }
  EXPECT_EQ(with_policy(truth, kLayer, requests).n_switches, 1);
  EXPECT_EQ(with_policy(truth, kTensor, requests).n_switches, 0);
}

// Every answer seems to become long and ends at once: going back to generate never pays.
TEST(PhasePolicy, AnswersThatDisappointDoNotMakeItFlap) {
  const SplitMeasures truth = two_sided(0.3);
  std::vector<Request> requests;
  for (int i = 0; i < 1000; ++i) {
    requests.push_back({.arrival_s = 1.5 * i, .n_prompt = 6000, .n_answer = 2, .n_claimed = 1000});
  }
  const Outcome outcome = with_policy(truth, kLayer, requests);
  const double minutes = outcome.total_s / 60;
  EXPECT_GT(outcome.n_switches, 0);
  EXPECT_LT(outcome.n_switches, 12 + 2 * minutes);  // of 2,000 that its expectations alone would have made
  EXPECT_LT(outcome.total_s, 1.05 * staying_s(truth, kLayer, requests));
}

// More prompts than can be read: there is always something to read, and always somebody who generates.
TEST(PhasePolicy, NobodyStarvesWhenPromptsNeverEnd) {
  const SplitMeasures truth = two_sided(0.05);
  std::vector<Request> requests;
  for (int i = 0; i < 300; ++i) {
    requests.push_back({.arrival_s = 0.2 * i, .n_prompt = 2500, .n_answer = 1000});
  }
  PhasePolicy policy(truth, kTensor);
  const double phase_s = static_cast<double>(policy.phase_us()) / 1e6;
  EXPECT_EQ(phase_s, 2);
  const Outcome outcome = Simulation(truth, kTensor, requests).run(&policy);
  const double step_s = 512.0 / 4000;
  EXPECT_GT(outcome.n_switches, 10);  // nobody stays long where it generates slowly
  EXPECT_LT(outcome.n_switches, 2 * outcome.total_s / phase_s);
  EXPECT_LE(outcome.longest_gap_s, 2 * (step_s + 0.05));
  EXPECT_LE(outcome.longest_wait_s, phase_s + 4 * (step_s + 0.05));
}

TEST(PhasePolicy, PhasesAreBoundedAndLastLongerWhereSwitchesDo) {
  EXPECT_EQ(PhasePolicy(two_sided(0.001), kLayer).phase_us(), 2'000'000);
  EXPECT_EQ(PhasePolicy(two_sided(0.2), kLayer).phase_us(), 8'000'000);
  EXPECT_EQ(PhasePolicy(two_sided(1e9), kLayer).phase_us(), 10'000'000);
}

TEST(PhasePolicy, WhatWasLeftTooSoonMakesTheNextSwitchHarder) {
  PhasePolicy policy(two_sided(0.05), kTensor);
  EXPECT_EQ(policy.why(), "");
  const ServingLoad reading = {.n_reading = 1, .n_prompt = 8000, .n_predict = 500, .step_prompt = 64};
  PhasePolicy::Advice advice = policy.advise(reading, 0);
  EXPECT_EQ(advice.split, kLayer);
  EXPECT_EQ(advice.pace, ReadingPace::kWhole);
  EXPECT_EQ(policy.phase_name(), "reading");
  EXPECT_THAT(policy.why(), HasSubstr("the prompt under layer, the answer under tensor"));
  policy.switched(kLayer, 0.07, 70'000);
  EXPECT_EQ(policy.measures().switch_s[kTensor], 0.07);
  // The client leaves at once, another one generates.
  const ServingLoad generating = {.n_generating = 1, .n_predict = 500, .step_generated = 1};
  advice = policy.advise(generating, 80'000);
  EXPECT_EQ(advice.split, kTensor);
  EXPECT_EQ(advice.pace, ReadingPace::kShared);
  policy.switched(kTensor, 0.05, 130'000);
  EXPECT_EQ(policy.caution()[kLayer], 2);
  policy.advise(generating, 60'000'000);
  EXPECT_EQ(policy.caution()[kLayer], 2);
  policy.advise(generating, 60'200'000);
  EXPECT_EQ(policy.caution()[kLayer], 1);
  EXPECT_EQ(policy.caution()[kTensor], 1);
}

TEST(PhasePolicy, NothingToDoIsNoReasonToMove) {
  PhasePolicy policy(two_sided(0.0001), kLayer);
  EXPECT_EQ(policy.advise({}, 0).split, kLayer);
  EXPECT_EQ(policy.phase_name(), "free");
}

}  // namespace
}  // namespace tessera

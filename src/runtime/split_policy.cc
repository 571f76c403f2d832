#include "runtime/split_policy.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/check.h"

namespace tessera {
namespace {

constexpr double kSwitchCaution = 1.25;  // how much longer than measured a switch is taken to last
constexpr double kLeastGain = 0.01;      // of the time of staying; the spread of speeds from run to run is 1 to 2 %

// Seconds of a whole prompt.
double whole_prefill_seconds(const SplitSpeeds& speeds, int64_t n_tokens) {
  const std::vector<SpeedPoint>& points = speeds.prefill;
  CHECK(!points.empty());
  const auto seconds = [](const SpeedPoint& point, double n) { return n / point.tokens_per_s; };
  const auto n = static_cast<double>(n_tokens);
  const auto above = std::ranges::lower_bound(points, n_tokens, {}, &SpeedPoint::n);
  if (above == points.begin()) {
    return seconds(points.front(), n);
  }
  if (above == points.end()) {
    return seconds(points.back(), n);
  }
  const SpeedPoint& low = *(above - 1);
  const double part = static_cast<double>(n_tokens - low.n) / static_cast<double>(above->n - low.n);
  return (1 - part) * seconds(low, static_cast<double>(low.n)) + part * seconds(*above, static_cast<double>(above->n));
}

// Seconds of the request under a choice, each switch taken `caution` times.
double seconds_of(const SplitMeasures& measures, const SplitCase& request, size_t prefill, size_t generation,
                  double caution) {
  const double to_prompt = prefill != request.now ? measures.switch_s[request.now] : 0;
  const double to_answer = generation != prefill ? measures.switch_s[prefill] : 0;
  const double n_seqs = static_cast<double>(request.n_seqs);
  const auto n_readers = static_cast<double>(request.n_readers > 0 ? request.n_readers : request.n_seqs);
  const double reading = n_readers * prefill_seconds(measures.splits[prefill], request.n_prompt, request.n_before);
  const double generating =
      n_seqs * static_cast<double>(request.n_predict) / generation_speed(measures.splits[generation], request.n_seqs);
  return reading + generating + caution * (to_prompt + to_answer);
}

}  // namespace

double prefill_seconds(const SplitSpeeds& speeds, int64_t n_tokens, int64_t n_before) {
  // Where a longer prompt was measured to take less time, by the spread of the speeds, its last part takes none.
  return std::max(0.0, whole_prefill_seconds(speeds, n_before + n_tokens) - whole_prefill_seconds(speeds, n_before));
}

double generation_speed(const SplitSpeeds& speeds, int64_t n_seqs) {
  const std::vector<SpeedPoint>& points = speeds.generation;
  CHECK(!points.empty());
  const auto above = std::ranges::lower_bound(points, n_seqs, {}, &SpeedPoint::n);
  if (above == points.begin() || above == points.end()) {
    const SpeedPoint& nearest = above == points.begin() ? points.front() : points.back();
    return nearest.tokens_per_s * static_cast<double>(n_seqs) / static_cast<double>(nearest.n);
  }
  const SpeedPoint& low = *(above - 1);
  const double part = static_cast<double>(n_seqs - low.n) / static_cast<double>(above->n - low.n);
  return (1 - part) * low.tokens_per_s + part * above->tokens_per_s;
}

SplitDecision decide_split(const SplitMeasures& measures, const SplitCase& request) {
  CHECK(request.now < measures.splits.size());
  SplitDecision decision{request.now, request.now, 0, 0};
  decision.stay_s = seconds_of(measures, request, request.now, request.now, 1);
  double least = decision.stay_s * (1 - kLeastGain);
  for (const size_t prefill : {0U, 1U}) {
    for (const size_t generation : {0U, 1U}) {
      const bool stays = prefill == request.now && generation == request.now;
      const double seconds = seconds_of(measures, request, prefill, generation, kSwitchCaution);
      if (!stays && seconds < least) {
        least = seconds;
        decision.prefill = prefill;
        decision.generation = generation;
      }
    }
  }
  decision.expected_s = seconds_of(measures, request, decision.prefill, decision.generation, 1);
  return decision;
}

std::string decision_text(const SplitMeasures& measures, const SplitCase& request, const SplitDecision& decision) {
  const std::string& now = measures.splits[request.now].split_mode;
  const std::string lengths =
      fmt::format("{} tokens to read{} and about {} to generate", request.n_prompt,
                  request.n_before > 0 ? fmt::format(" behind {}", request.n_before) : "", request.n_predict);
  if (decision.prefill == request.now && decision.generation == request.now) {
    const size_t other = 1 - request.now;
    const double crossed = std::min({seconds_of(measures, request, request.now, other, 1),
                                     seconds_of(measures, request, other, request.now, 1),
                                     seconds_of(measures, request, other, other, 1)});
    return fmt::format("{}: the {} split stays, {:.3f} s; the best with switches takes {:.3f} s", lengths, now,
                       decision.stay_s, crossed);
  }
  return fmt::format("{}: the prompt under {}, the answer under {}, {:.3f} s; staying under {} takes {:.3f} s", lengths,
                     measures.splits[decision.prefill].split_mode, measures.splits[decision.generation].split_mode,
                     decision.expected_s, now, decision.stay_s);
}

}  // namespace tessera

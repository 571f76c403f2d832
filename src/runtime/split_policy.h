#pragma once
// Which split should read a request's prompt, and which should generate its answer: a pure decision from measured
// speeds. Between the same devices one split may be faster at long prompts and the other at single tokens; a switch
// costs time, so that often the best is to stay.
//
// Nothing here measures, switches or remembers. Values and pure functions; use from any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// A measured speed at one size.
struct SpeedPoint {
  int64_t n = 0;            // tokens of the prompt; sequences decoded together
  double tokens_per_s = 0;  // above 0; of all sequences together
};

struct SplitSpeeds {
  std::string split_mode;
  std::vector<SpeedPoint> prefill;     // not empty; by n, ascending
  std::vector<SpeedPoint> generation;  // not empty; by n, ascending
};

/// Two splits of one model on the same devices.
struct SplitMeasures {
  std::array<SplitSpeeds, 2> splits;
  std::array<double, 2> switch_s = {};  // [i]: from splits[i] to the other
};

struct SplitCase {
  size_t now = 0;         // the split that holds, an index into SplitMeasures::splits
  int64_t n_prompt = 0;   // tokens to be read by each sequence
  int64_t n_predict = 0;  // tokens that each sequence is expected to generate
  int64_t n_seqs = 1;     // sequences with such a request at once
  int64_t n_readers = 0;  // of these, those with a prompt to read; 0: all
  int64_t n_before = 0;   // tokens before those to be read, which are there already
};

struct SplitDecision {
  size_t prefill = 0;  // indices into SplitMeasures::splits
  size_t generation = 0;
  double expected_s = 0;  // of this choice, switches included
  double stay_s = 0;      // of staying under the split that holds
};

/// Seconds that a split needs for n_tokens of one prompt, behind n_before that are read already. Between measured
/// lengths the time is interpolated; outside, the speed of the nearest holds.
double prefill_seconds(const SplitSpeeds& speeds, int64_t n_tokens, int64_t n_before = 0);
/// Tokens per second of n_seqs sequences together; outside of what was measured, as each at the nearest.
double generation_speed(const SplitSpeeds& speeds, int64_t n_seqs);

/// The quickest of the four choices. To leave the split that holds, it must pay with every switch taking a quarter
/// longer than measured, and save more than a hundredth of staying: less than that is the spread of the speeds, and
/// requests near the break-even would switch to and fro.
SplitDecision decide_split(const SplitMeasures& measures, const SplitCase& request);

/// One sentence with the numbers, for the log.
std::string decision_text(const SplitMeasures& measures, const SplitCase& request, const SplitDecision& decision);

}  // namespace tessera

#pragma once
// What Serving tells, before each step, whoever places its model; and what it may be told: how much of the next steps
// prompts get. Values.

#include <cstdint>

namespace tessera {

/// The work of a step and of the requests that have a slot. Those that wait for one are not in it: how much of them is
/// there already shows only then.
struct ServingLoad {
  int64_t n_reading = 0;       // requests that lack more than one token: their prompts are read
  int64_t n_prompt = 0;        // tokens that these lack
  int64_t n_before = 0;        // tokens that these have
  int64_t n_generating = 0;    // the other requests
  int64_t n_predict = 0;       // tokens that all requests together are expected to generate
  int64_t step_prompt = 0;     // of n_prompt, those that this step reads
  int64_t step_generated = 0;  // requests for which this step generates a token
};

/// How prompts are read while other requests generate.
enum class ReadingPace : uint8_t {
  kShared,  // they get a part of each step, ServingOptions::prompt_tokens_per_step
  kWhole,   // all that the step takes; every other request still gets a token in each
  kNone,    // they wait
};

}  // namespace tessera

#include "break_even.h"

namespace tessera {
namespace {

std::optional<double> tokens_that_gain(double gain_s, double switch_s) {
  return gain_s > 0 ? std::optional(switch_s / gain_s) : std::nullopt;
}

}  // namespace

BreakEven break_even(const PhaseTimes& reading, const PhaseTimes& generating, double switch_s) {
  return {tokens_that_gain(generating.prompt_s - reading.prompt_s, switch_s),
          tokens_that_gain(reading.step_s - generating.step_s, switch_s)};
}

}  // namespace tessera

#pragma once
// From which lengths on it pays to read prompts under one placement and to generate under another.

#include <optional>

namespace tessera {

/// Speeds of one placement, for as many sequences as are decoded together.
struct PhaseTimes {
  double prompt_s = 0;  // per token of each sequence's prompt
  double step_s = 0;    // per token that each sequence generates
};

/// Lengths of each sequence; nothing where no length is enough.
struct BreakEven {
  std::optional<double> prompt_tokens;     // from here on the switch beats staying under the generating placement
  std::optional<double> generated_tokens;  // from here on it beats staying under the reading one
};

/// reading, generating: the placements of the two phases; the switch between them takes switch_s seconds.
BreakEven break_even(const PhaseTimes& reading, const PhaseTimes& generating, double switch_s);

}  // namespace tessera

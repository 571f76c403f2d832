#pragma once
// Grammars of decimal numbers between bounds, as JSON writes them.
//
// Numbers are compared digit by digit, so bounds are exact. What is generated stays below kMaxNumberDigits digits on
// either side of the point, and bounded numbers have no exponent: a model gains nothing from more, and it could go on
// for ever.

#include <optional>
#include <string>

#include "base/status.h"

namespace tessera {

inline constexpr int kMaxNumberDigits = 16;

/// A bound as decimal text: "-12.5". REQUIRES: digits with an optional sign and an optional point between digits.
struct NumberBound {
  std::string decimal;
  bool exclusive = false;
};

/// A GBNF expression, in parentheses, for the numbers between the bounds. whole: only those without fraction.
/// Errors: kInvalidArgument: there is no such number, or none below 10^kMaxNumberDigits.
Result<std::string> number_grammar(const std::optional<NumberBound>& min, const std::optional<NumberBound>& max,
                                   bool whole);

}  // namespace tessera

#pragma once
// Regular expressions of JSON schemas as grammars of what stands between the quotes of a JSON string.
//
// The expression is that of ECMA-262 as far as it is regular: alternatives, groups, classes, \d \w \s and their
// opposites, ., quantifiers (lazy ones mean the same here), ^ and $ at the ends of alternatives. Where an end has no
// anchor anything may stand there, as the specification demands. Characters that JSON must escape are escaped; others
// stand for themselves (\u0041 for A is never generated). \d and \w are ASCII. Look-around, back references, \b,
// \p{...} and anchors inside are errors that name them. Work is linear in the expression and depth is limited.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera {

struct LengthBounds {
  uint64_t min = 0;
  uint64_t max = UINT64_MAX;
};

/// A GBNF expression, in parentheses. any_char: the name of the rule for one character of a JSON string. length: what
/// minLength and maxLength say beside the pattern: fine if the pattern keeps to it by itself, or is one anchored
/// quantified class, which is narrowed. Errors: kInvalidArgument with the place in the expression; kUnsupported.
Result<std::string> pattern_grammar(std::string_view pattern, std::string_view any_char, LengthBounds length = {});

}  // namespace tessera

#pragma once
// GBNF as text, for what writes grammars.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/grammar/gbnf.h"

namespace tessera {

/// A literal that stands for this UTF-8, quotes included.
std::string gbnf_literal(std::string_view text);

/// A class of these code points, brackets included. REQUIRES: ranges not empty.
std::string gbnf_class(const CodeRanges& ranges);

/// "{min,max}" and its short forms, "" for once. max may be kUnlimited.
std::string gbnf_repeat(uint32_t min, uint32_t max);

}  // namespace tessera

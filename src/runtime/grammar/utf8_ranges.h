#pragma once
// Sets of code points as sequences of byte ranges: what an automaton over UTF-8 is made of.

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/grammar/gbnf.h"

namespace tessera {

/// Bytes first[i] .. last[i] in place i of a character of n_bytes.
struct Utf8Sequence {
  int n_bytes = 0;
  std::array<uint8_t, 4> first = {};
  std::array<uint8_t, 4> last = {};
};

/// Sequences that together spell exactly the code points of a range, ascending. REQUIRES: last <= 0x10FFFF.
void append_utf8_sequences(CodeRange range, std::vector<Utf8Sequence>& out);

}  // namespace tessera

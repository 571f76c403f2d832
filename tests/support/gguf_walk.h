#pragma once
// Touches all that an opened GGUF file offers, as loaders do: for mutants and fuzzing.

#include "gguf/gguf.h"

namespace tessera {

/// Reads every key through every getter, and the first and last row (at most a few blocks of each) of every tensor
/// through the scalar decoder. Result: a sum over what was read, so that nothing is optimised away.
double walk_gguf(const GgufFile& file);

}  // namespace tessera

#pragma once
// Every command and flag of `tessera`: the one place to add, rename or document a flag. What the fields mean stands in
// base/flags.h; docs/flags.md is made from this table by `tessera help --markdown`.

#include "base/flags.h"

namespace tessera {

/// The program's table; constant, lives as long as the program.
const FlagTable& tessera_flags();

}  // namespace tessera

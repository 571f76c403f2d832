#pragma once
// Every command and flag of `tessera`: the one place to add, rename or document a flag. What the fields mean stands in
// base/flags.h; docs/flags.md is made from this table by `tessera help --markdown`.

#include "base/flags.h"

namespace tessera {

/// What the program exits with where it does not succeed.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as shells report it

/// The program's table; constant, lives as long as the program.
const FlagTable& tessera_flags();

}  // namespace tessera

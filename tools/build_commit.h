#pragma once
// What the program was built from; cmake/build_commit.cmake writes the values.

namespace tessera {

/// The abbreviated commit, with "-changed" where files differ from it; "unknown" without a history.
extern const char* const kBuildCommit;
/// Commits up to it; 0 without a history.
extern const int kBuildNumber;

}  // namespace tessera

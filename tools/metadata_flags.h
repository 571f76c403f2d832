#pragma once
// Flags that say what a model is, other than its file does, as overrides of the file's metadata. There is no other way
// from such a flag to the model.

#include <string>
#include <vector>

#include "base/flags.h"
#include "base/status.h"

namespace tessera {

/// For ModelOptions::override_kv: --override-kv, --rope-* and --yarn-*, in the order of the command line.
std::vector<std::string> metadata_overrides(const ParsedFlags& flags);

/// Errors: kInvalidArgument citing an --override-kv that is none.
Status check_metadata_flags(const ParsedFlags& flags);

}  // namespace tessera

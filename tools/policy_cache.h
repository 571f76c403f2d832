#pragma once
// The file in which --split-policy auto keeps what it has measured, one entry per model and devices:
// {"version": 1, "entries": {KEY: {"splits": [{"split_mode", "prefill": [[n, tokens/s], ...], "generation": ...}, ...],
// "switch_s": [x, y]}}}. It is a cache: what cannot be read or makes no sense counts as absent, and is measured again.

#include <optional>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "runtime/context.h"
#include "runtime/split_policy.h"

namespace tessera {

/// tessera/split-policy.json in $XDG_CACHE_HOME, or in .cache of $HOME. Empty when neither is set.
std::string default_policy_cache();

/// Everything that speeds depend on: the model's shape and bytes (not its name: models of one shape are equally fast),
/// devices, threads, kernels, shares, and the context's sizes and types.
std::string policy_key(const Context& context, const ModelOptions& options);

/// The entry of a key. Nothing when there is none; a file that is no such cache is said in the log.
std::optional<SplitMeasures> read_policy_cache(const std::string& path, const std::string& key, const Log& log);

/// Adds or replaces an entry; makes the folder where there is none. An empty path is no file. Errors: kIo, kNotFound.
Status write_policy_cache(const std::string& path, const std::string& key, const SplitMeasures& measures);

}  // namespace tessera

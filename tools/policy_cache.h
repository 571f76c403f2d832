#pragma once
// The file in which --split-policy auto keeps what it has measured, one entry per model and devices:
// {"version": 2, "entries": {KEY: {"made_s", "splits": [{"split_mode", "prefill": [[n, tokens/s], ...], "generation":
// ...}, ...], "switch_s": [x, y]}}}. made_s: Unix time of the measurement; an entry without it is somebody's own, and
// not doubted. It is a cache: what cannot be read or makes no sense counts as absent, and is measured again.

#include <cstdint>
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

struct PolicyEntry {
  SplitMeasures measures;
  std::optional<int64_t> made_s = {};  // Unix time
};

/// The entry of a key. Nothing when there is none; a file that is no such cache is said in the log.
std::optional<PolicyEntry> read_policy_cache(const std::string& path, const std::string& key, const Log& log);

/// Adds or replaces an entry; makes the folder where there is none. An empty path is no file. Errors: kIo, kNotFound.
Status write_policy_cache(const std::string& path, const std::string& key, const PolicyEntry& entry);

/// Whether it was made more than a day before now_s, or after it: a clock has been set.
bool is_out_of_date(const PolicyEntry& entry, int64_t now_s);

/// Whether two measurements of one speed lie further apart than a quiet machine lets them: by more than a quarter.
bool is_another_speed(double measured, double cached);

}  // namespace tessera

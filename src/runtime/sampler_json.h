#pragma once
// Sampling settings as JSON, for reports of front ends.

#include <nlohmann/json_fwd.hpp>

#include "runtime/sampler_options.h"

namespace tessera {

/// One object: every number by its name, then samplers (names in order) and dry_sequence_breakers.
nlohmann::ordered_json sampler_settings_json(const SamplerOptions& options);

}  // namespace tessera

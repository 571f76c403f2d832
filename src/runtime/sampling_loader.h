#pragma once
// What a model file recommends for sampling: its keys general.sampling.*.

#include <functional>
#include <string_view>

#include "gguf/metadata.h"
#include "runtime/sampler_options.h"

namespace tessera {

/// SamplerOptions with the file's values in place of the defaults. A value of the wrong type or out of range is left
/// out, and warn (may be empty) is told why.
SamplerOptions recommended_sampling(const Metadata& meta, const std::function<void(std::string_view)>& warn = {});

}  // namespace tessera

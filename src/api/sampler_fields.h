#pragma once
// The numbers of tsr_sampler_options: the one place where the public names and the engine's settings meet. A test sees
// that no setting is missing. Private to this room.

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "tessera/tessera.h"

namespace tessera::api {

struct SamplerField {
  std::string_view name;  // of the setting (runtime/sampler_options.h)
  std::variant<float tsr_sampler_options::*, int32_t tsr_sampler_options::*> member;
};

/// Every number but the seed, in the order of the struct.
std::span<const SamplerField> sampler_fields();

}  // namespace tessera::api

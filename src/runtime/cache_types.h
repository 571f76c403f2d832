#pragma once
// The types that a KV cache may have, as front ends name them.

#include <string_view>

#include "base/status.h"
#include "tensor/dtype.h"

namespace tessera {

/// Separated by blanks.
inline constexpr std::string_view kCacheTypeNames = "f32 f16 bf16 q8_0 q4_0";

/// The type with this name (case does not matter). Errors: kInvalidArgument naming what was given, and all there are.
Result<DType> cache_type_from_name(std::string_view name);

}  // namespace tessera

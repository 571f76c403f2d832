#pragma once
// The types a KV cache may have on a CPU; keys and values choose independently. Private to kernels/cpu.

#include <array>

#include "tensor/dtype.h"

namespace tessera {

inline constexpr std::array kCacheTypes = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0};

}  // namespace tessera

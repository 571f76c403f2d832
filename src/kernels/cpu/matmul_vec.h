#pragma once
// What the quantised products need besides vec.h, for every instruction set: lines of packed weights (matmul_formats.h)
// and their exact integer products with activations. matmul_vec_portable.h states the meanings.

#include <array>
#include <cstdint>

#include "kernels/cpu/vec.h"

namespace tessera {

/// What each of 16 codes stands for.
struct alignas(16) ByteTable : std::array<uint8_t, 16> {};

}  // namespace tessera

#if defined(__AVX512F__)
#include "kernels/cpu/matmul_vec_avx512.h"
#elif defined(__AVX2__)
#include "kernels/cpu/matmul_vec_avx2.h"
#else
#include "kernels/cpu/matmul_vec_portable.h"
#endif

#pragma once
// The rounding of Op::kQuantize (kernels/ops/quantize.h) for one block and for one row, for use inside kernel bodies.
//
// Compiled once per instruction set (see vec.h); all of them give equal bits. A block whose scale would not be a normal
// float counts as a zero block: its reciprocal could overflow.

#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/cpu/vec.h"
#include "kernels/ops/quantize.h"
#if defined(__AVX512F__)
#include "kernels/cpu/quantize_avx512.h"
#endif

namespace tessera::TESSERA_ISA {

/// Quantises 32 values given as two vectors: q [32] and what belongs to the block.
inline void quantize_block(F32x16 x0, F32x16 x1, int8_t* q, Q8Scale* scale) {
  const float d = max_lane(max(abs(x0), abs(x1))) / 127.0F;
  const bool empty = d < FLT_MIN;
  const F32x16 inverse = splat(empty ? 0.0F : 1.0F / d);
  // Adding 1.5 * 2^23 leaves the value, rounded half to even, in the low bits.
  const F32x16 magic = splat(12582912.0F);
  const I32x16 q0 = bits(x0 * inverse + magic) - bits(magic);
  const I32x16 q1 = bits(x1 * inverse + magic) - bits(magic);
  const int32_t first = sum_int(q0);
  const int32_t total = sum_int(q0 + q1);
  if (total > 32 * 127 || total < -32 * 127) {  // only the bits of a NaN: some x was not finite
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    std::memset(q, 0, kQ8Block);
    *scale = {kNan, kNan, kNan, kSumStart, kSumStart, kSumStart};
    return;
  }
  store_low_bytes(q, q0);
  store_low_bytes(q + 16, q1);
  const float stored = empty ? 0.0F : d;
  *scale = {stored,
            stored * static_cast<float>(total),
            stored * static_cast<float>(first),
            kSumStart - 128 * total,
            kSumStart - 128 * first,
            kSumStart - 128 * (total - first)};
}

/// Quantises n values, the columns from `begin` of row `row` of q8; begin and n are multiples of 32. x: [n] f32.
inline void quantize_part(const float* x, void* q8, int64_t row, int64_t columns, int64_t begin, int64_t n) {
  std::byte* base = static_cast<std::byte*>(q8) + row * q8_row_bytes(columns);
  auto* q = reinterpret_cast<int8_t*>(base) + begin;
  auto* scales = reinterpret_cast<Q8Scale*>(base + columns) + begin / kQ8Block;
  for (int64_t i = 0; i < n;) {
#if defined(__AVX512F__)
    if (i + 4 * kQ8Block <= n && quantize_four_blocks(x + i, q + i, scales + i / kQ8Block)) {
      i += 4 * kQ8Block;
      continue;
    }
#endif
    quantize_block(load(x + i), load(x + i + 16), q + i, scales + i / kQ8Block);
    i += kQ8Block;
  }
}

/// Quantises columns [begin, end), multiples of 32, of x [columns] f32 into row `row` of q8.
inline void quantize_columns(const float* x, void* q8, int64_t row, int64_t columns, int64_t begin, int64_t end) {
  quantize_part(x + begin, q8, row, columns, begin, end - begin);
}

}  // namespace tessera::TESSERA_ISA

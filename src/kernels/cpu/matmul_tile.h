#pragma once
// One row group times a few tokens: the arithmetic of matmul_formats.h, compiled once per instruction set.
//
// A tile reads weights either straight from a packed panel (PackedWeights: unpacked in registers, for few tokens) or
// from a slab (SlabWeights: unpacked once, for many; always so for coded formats). Both give equal bits.

#include <array>
#include <bit>
#include <utility>

#include "kernels/cpu/matmul_formats.h"
#include "kernels/cpu/matmul_slab.h"
#include "kernels/cpu/matmul_vec.h"
#include "kernels/cpu/matmul_weights.h"
#include "kernels/ops/quantize.h"

namespace tessera::TESSERA_ISA {

/// The tokens of a tile: row t is row_bytes after row t - 1, for q and scales alike.
struct Activations {
  const int8_t* q = nullptr;        // [n_tokens, columns]
  const Q8Scale* scales = nullptr;  // [n_tokens, columns / 32]
  int64_t row_bytes = 0;

  [[nodiscard]] const int8_t* quants(int64_t t, int64_t b) const { return q + t * row_bytes + b * kQ8Block; }
  [[nodiscard]] const Q8Scale& scale(int64_t t, int64_t b) const {
    return *reinterpret_cast<const Q8Scale*>(reinterpret_cast<const std::byte*>(scales + b) + t * row_bytes);
  }
  [[nodiscard]] Activations from(int64_t t, int64_t b) const { return {quants(t, b), &scale(t, b), row_bytes}; }
};

/// Adds n_blocks blocks to the results of kGroups adjacent groups of rows and kTokens tokens.
/// y: [kTokens, y_stride], 16 columns for each group; of the last group's, n_rows are written.
/// first: results start at 0, else at what y holds.
template <class Weights, int kTokens, int kGroups>
void product_tile(Weights weights, int64_t n_blocks, const Activations& x, bool first, float* y, int64_t y_stride,
                  int64_t n_rows) {
  constexpr int kParts = Weights::kHalves ? 2 : 1;
  constexpr int kPartLines = static_cast<int>(kBlockLines) / kParts;
  using Sum = LineSum<Weights::kBits, kTokens>;
  constexpr bool kCorrect = !Weights::kHasMin && !Sum::kRemovesOffset;
  constexpr int kShift = kCorrect ? std::countr_zero(128U / static_cast<unsigned>(Weights::kOffset)) : 0;
  const auto rows_of = [&](int g) { return g == kGroups - 1 ? n_rows : kGroupRows; };

  auto groups = [&]<int... g>(std::integer_sequence<int, g...>) {
    return std::array<Weights, kGroups>{weights.group(g)...};
  }(std::make_integer_sequence<int, kGroups>());
  F32x16 result[kGroups][kTokens];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      // By the time the results are stored, their lines are here: 4 panels of [2048, 512] lose 6 % instead of 22 %.
      __builtin_prefetch(y + t * y_stride + g * kGroupRows, 1);
      result[g][t] = first ? zero() : load_n(y + t * y_stride + g * kGroupRows, rows_of(g));
    }
  }
  for (int64_t b = 0; b < n_blocks; ++b) {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      groups[g].template enter<kGroups>(b);
      const auto part = [&]<int p>() {
        Sum sum[kTokens];
#pragma GCC unroll 16
        for (int t = 0; t < kTokens; ++t) {
          const Q8Scale& s = x.scale(t, b);
          const int32_t c = !Weights::kHalves ? s.c : p == 0 ? s.c_first : s.c - s.c_first;
          sum[t].start(kCorrect ? c >> kShift : 0);
        }
        [&]<int... j>(std::integer_sequence<int, j...>) {
          const auto step = [&]<int index>() {
            constexpr int kLine = p * kPartLines + index;
            const Bytes line = groups[g].template line<kLine>();
#pragma GCC unroll 16
            for (int t = 0; t < kTokens; ++t) {
              sum[t].template add<index>(line, x.quants(t, b) + 4 * kLine);
            }
          };
          (step.template operator()<j>(), ...);
        }(std::make_integer_sequence<int, kPartLines>());
        const F32x16 scale = groups[g].scale(p);
#pragma GCC unroll 16
        for (int t = 0; t < kTokens; ++t) {
          result[g][t] = fma(sum[t].finish(), scale * splat(x.scale(t, b).d), result[g][t]);
        }
        if constexpr (Weights::kHasMin) {
          const F32x16 min = groups[g].min();
#pragma GCC unroll 16
          for (int t = 0; t < kTokens; ++t) {
            result[g][t] = fma(min, splat(x.scale(t, b).m), result[g][t]);
          }
        }
        if constexpr (Weights::kHalfMins) {
          const F32x16 difference = groups[g].min_difference();
#pragma GCC unroll 16
          for (int t = 0; t < kTokens; ++t) {
            const Q8Scale& s = x.scale(t, b);
            result[g][t] = fma(difference, splat(s.d) * splat_converted(s.c_first), result[g][t]);
          }
        }
      };
      [&]<int... p>(std::integer_sequence<int, p...>) {
        (part.template operator()<p>(), ...);
      }(std::make_integer_sequence<int, kParts>());
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      store_n(y + t * y_stride + g * kGroupRows, result[g][t], rows_of(g));
    }
  }
}

}  // namespace tessera::TESSERA_ISA

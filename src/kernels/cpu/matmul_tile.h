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

/// The tokens of a tile: row t is q_bytes after row t - 1, its scales scale_bytes after those.
struct Activations {
  const int8_t* q = nullptr;        // [n_tokens, columns], i8; for wide slabs i16
  const Q8Scale* scales = nullptr;  // [n_tokens, columns / 32]
  int64_t q_bytes = 0;
  int64_t scale_bytes = 0;

  /// The 4 bytes that a line of a block of so many lines is multiplied with.
  template <int kLines>
  [[nodiscard]] const int8_t* word(int64_t t, int64_t b, int line) const {
    return q + t * q_bytes + b * (4 * kLines) + 4 * line;
  }
  [[nodiscard]] const Q8Scale& scale(int64_t t, int64_t b) const {
    return *reinterpret_cast<const Q8Scale*>(reinterpret_cast<const std::byte*>(scales + b) + t * scale_bytes);
  }
  [[nodiscard]] Activations from(int64_t t, int64_t b) const {
    return {word<kBlockLines>(t, b, 0), &scale(t, b), q_bytes, scale_bytes};
  }
};

/// Adds part p of block b, which the groups have entered, to the results of kGroups groups and kTokens tokens; a part
/// is the whole block or, where halves have scales of their own, one of them. Groups share each word of activations.
template <int p, int kGroups, int kTokens, class Weights>
[[gnu::always_inline]] inline void add_part(const Weights* groups, const Activations& x, int64_t b,
                                            F32x16 (*result)[kTokens]) {
  constexpr int kPartLines = Weights::kLines / (Weights::kHalves ? 2 : 1);
  using Sum = LineSum<Weights::kBits, kTokens>;
  constexpr bool kCorrect = !Weights::kHasMin && !Sum::kRemovesOffset;
  constexpr int kShift = kCorrect ? std::countr_zero(128U / static_cast<unsigned>(Weights::kOffset)) : 0;
  Sum sum[kGroups][kTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    const Q8Scale& s = x.scale(t, b);
    const int32_t c = !Weights::kHalves ? s.c : p == 0 ? s.c_first : s.c_second;
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      sum[g][t].start(!kCorrect ? kSumStart : kShift == 0 ? c : ((c - kSumStart) >> kShift) + kSumStart);
    }
  }
  [&]<int... j>(std::integer_sequence<int, j...>) {
    const auto step = [&]<int index>() {
      constexpr int kLine = p * kPartLines + index;
      Bytes line[kGroups];
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
        line[g] = groups[g].template line<kLine>();
      }
#pragma GCC unroll 16
      for (int t = 0; t < kTokens; ++t) {
        const Word word = load_word(x.template word<Weights::kLines>(t, b, kLine));
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) {
          sum[g][t].template add<index>(line[g], word);
        }
      }
    };
    (step.template operator()<j>(), ...);
  }(std::make_integer_sequence<int, kPartLines>());
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) {
    const F32x16 scale = groups[g].scale(p);
    const F32x16 start = groups[g].start(p);
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      const F32x16 scaled = Weights::kConverts ? (sum[g][t].finish() - splat(kSumStartValue)) * scale
                                               : fma(sum[g][t].finish(), scale, start);
      result[g][t] = fma(scaled, splat(x.scale(t, b).d), result[g][t]);
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
        result[g][t] = fma(difference, splat(x.scale(t, b).m_first), result[g][t]);
      }
    }
  }
}

/// Adds n_blocks blocks to the results of kGroups adjacent groups of rows and kTokens tokens.
/// y: [kTokens, y_stride], 16 columns for each group; of the last group's, n_rows are written.
/// first: results start at 0, else at what y holds.
/// ask: from a slab, n_blocks lines that are read next; they arrive, as the next tokens' results do, while this
/// computes: one line with each block, since many at once would fill the core's few buffers for lines on their way.
template <class Weights, int kTokens, int kGroups>
void product_tile(Weights weights, int64_t n_blocks, const Activations& x, bool first, float* y, int64_t y_stride,
                  int64_t n_rows, const std::byte* ask) {
  constexpr int kJointGroups = Weights::kFromSlab ? kGroups : 1;
  const auto rows_of = [&](int g) { return g == kGroups - 1 ? n_rows : kGroupRows; };
  auto groups = [&]<int... g>(std::integer_sequence<int, g...>) {
    return std::array<Weights, kGroups>{weights.group(g)...};
  }(std::make_integer_sequence<int, kGroups>());
  F32x16 result[kGroups][kTokens];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      if constexpr (!Weights::kFromSlab) {
        __builtin_prefetch(y + t * y_stride + g * kGroupRows, 1);  // by the time they are stored, their lines are here
      }
      result[g][t] = first ? zero() : load_n(y + t * y_stride + g * kGroupRows, rows_of(g));
    }
  }
  for (int64_t b = 0; b < n_blocks; ++b) {
    if constexpr (Weights::kFromSlab) {
      __builtin_prefetch(ask + b * kLineBytes, 0, 2);
#pragma GCC unroll 4
      for (int g = 0; g < kGroups && b < kTokens; ++g) {
        __builtin_prefetch(y + (kTokens + b) * y_stride + g * kGroupRows, 1);
      }
    }
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; g += kJointGroups) {
#pragma GCC unroll 4
      for (int i = 0; i < kJointGroups; ++i) {
        groups[g + i].template enter<kGroups>(b);
      }
      add_part<0, kJointGroups, kTokens>(groups.data() + g, x, b, result + g);
      if constexpr (Weights::kHalves) {
        add_part<1, kJointGroups, kTokens>(groups.data() + g, x, b, result + g);
      }
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

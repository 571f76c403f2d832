#pragma once
// One row group times a few tokens: the arithmetic of matmul_formats.h, compiled once per instruction set.
//
// A tile reads weights either straight from a packed panel (PackedWeights: unpacked in registers, for few tokens) or
// from a slab (SlabWeights: unpacked once, for many). Both give equal bits.

#include <array>
#include <bit>
#include <utility>

#include "kernels/cpu/matmul_formats.h"
#include "kernels/cpu/matmul_vec.h"
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

/// How far ahead of its use a line of weights is asked for. A decode waits for memory: with four groups read side by
/// side and this distance a Sapphire Rapids core reads 13-15 GB/s where one group without asking gives 8 (matmul_bench,
/// busy machine).
inline constexpr int64_t kPrefetchBytes = 1024;

/// The weights of one group, as packed. The high bits of a block are loaded once, when it is entered.
template <PackedFormat kFormat>
class PackedWeights {
 public:
  static constexpr int kBits = kFormat.bits;
  static constexpr int kOffset = kFormat.offset;
  static constexpr bool kHasMin = kFormat.kind == ScaleKind::kMin || kFormat.kind == ScaleKind::kSuperMin;
  static constexpr bool kHalves = kFormat.kind == ScaleKind::kSuperHalves;

  /// group_bytes: of a group.
  PackedWeights(const std::byte* group, int64_t group_bytes) : group_(group), group_bytes_(group_bytes) {}
  /// The weights of the i-th group after this one.
  [[nodiscard]] PackedWeights group(int i) const { return {group_ + i * group_bytes_, group_bytes_}; }

  void enter(int64_t b) {
    quants_ = group_ + kFormat.quants_at(b);
    head_ = group_ + kFormat.head_at(b);
    within_ = b % kFormat.unit_blocks();
    constexpr int64_t kBlockBytes = kFormat.unit_bytes() / kFormat.unit_blocks();
#pragma GCC unroll 16
    for (int64_t ahead = 0; ahead < kBlockBytes; ahead += kLineBytes) {
      __builtin_prefetch(quants_ + kPrefetchBytes + ahead);
    }
    if constexpr (kBits == 5 || kBits == 6) {
      high_[0] = load_bytes(quants_ + 4 * kLineBytes);
    }
    if constexpr (kBits == 6) {
      high_[1] = load_bytes(quants_ + 5 * kLineBytes);
    }
  }

  template <int j>
  [[nodiscard]] Bytes line() const {
    if constexpr (kBits == 8) {
      return load_bytes(quants_ + j * kLineBytes);
    } else {
      const Bytes folded = load_bytes(quants_ + j % 4 * kLineBytes);
      const Bytes low = j < 4 ? low_nibbles(folded) : high_nibbles(folded);
      if constexpr (kBits == 5) {
        return join_bits<4 - j, 0x10>(low, high_[0]);
      } else if constexpr (kBits == 6) {
        return join_bits<4 - 2 * (j % 4), 0x30>(low, high_[j / 4]);
      } else {
        return low;
      }
    }
  }

  /// [16] scales of the block; kHalves: of one half of it.
  [[nodiscard]] F32x16 scale(int half) const {
    if constexpr (kFormat.kind == ScaleKind::kOffset) {
      return load_f16(f16_at(32 * within_));
    } else if constexpr (kFormat.kind == ScaleKind::kMin) {
      return load_f16(f16_at(0));
    } else if constexpr (kFormat.kind == ScaleKind::kSuperMin) {
      return load_f16(f16_at(0)) * load_u8(head_ + 64 + 32 * within_);
    } else {
      return load_f16(f16_at(256)) * load_i8(reinterpret_cast<const int8_t*>(head_ + 32 * within_ + 16 * half));
    }
  }

  /// [16] what the sum of the activations is multiplied with.
  [[nodiscard]] F32x16 min() const {
    if constexpr (kFormat.kind == ScaleKind::kSuperMin) {
      return splat(-0.0F) - load_f16(f16_at(32)) * load_u8(head_ + 64 + 32 * within_ + 16);
    } else {
      return load_f16(f16_at(32));
    }
  }

 private:
  [[nodiscard]] const uint16_t* f16_at(int64_t at) const { return reinterpret_cast<const uint16_t*>(head_ + at); }

  const std::byte* group_;
  int64_t group_bytes_;
  const std::byte* quants_ = nullptr;
  const std::byte* head_ = nullptr;
  int64_t within_ = 0;
  Bytes high_[2] = {};
};

inline constexpr int64_t kSlabBlocks = 24;  // with 12 tokens' activations about 32 KiB

/// Some blocks of a group, one byte per quant.
struct Slab {
  alignas(64) std::byte lines[kSlabBlocks][kBlockLines * kLineBytes];
  float scale[kSlabBlocks][kGroupRows];
  float second[kSlabBlocks][kGroupRows];  // minimum, or scale of the second half
};

/// kSlabKind: how blocks are scaled; only what differs in a tile, so that formats share slab tiles.
template <int kSlabBits, int kSlabQuantOffset, bool kSlabHasMin, bool kSlabHalves>
class SlabWeights {
 public:
  static constexpr int kBits = kSlabBits;
  static constexpr int kOffset = kSlabQuantOffset;
  static constexpr bool kHasMin = kSlabHasMin;
  static constexpr bool kHalves = kSlabHalves;

  explicit SlabWeights(const Slab& slab) : slab_(&slab) {}
  [[nodiscard]] SlabWeights group(int) const { return *this; }
  void enter(int64_t b) { b_ = b; }
  template <int j>
  [[nodiscard]] Bytes line() const {
    return load_bytes(slab_->lines[b_] + j * kLineBytes);
  }
  [[nodiscard]] F32x16 scale(int half) const { return load(half == 0 ? slab_->scale[b_] : slab_->second[b_]); }
  [[nodiscard]] F32x16 min() const { return load(slab_->second[b_]); }

 private:
  const Slab* slab_;
  int64_t b_ = 0;
};

/// The slab twin of a packed format. Offsets become kSlabOffset, where that costs nothing at run time.
template <class Weights>
constexpr int slab_offset() {
  if (Weights::kHasMin) {
    return 0;
  }
  return Weights::kOffset > kSlabOffset ? Weights::kOffset : kSlabOffset;
}
template <class Weights>
using SlabOf = SlabWeights<Weights::kHasMin                ? 5
                           : slab_offset<Weights>() == 128 ? 8
                           : slab_offset<Weights>() == 32  ? 6
                                                           : 5,
                           slab_offset<Weights>(), Weights::kHasMin, Weights::kHalves>;

/// Unpacks blocks [begin, begin + n) of a group, n <= kSlabBlocks.
template <class Weights>
void fill_slab(Weights weights, int64_t begin, int64_t n, Slab& slab) {
  constexpr int kAdd = slab_offset<Weights>() - Weights::kOffset;
  for (int64_t b = 0; b < n; ++b) {
    weights.enter(begin + b);
    [&]<int... j>(std::integer_sequence<int, j...>) {
      (store_bytes(slab.lines[b] + j * kLineBytes,
                   kAdd == 0 ? weights.template line<j>() : add_bytes(weights.template line<j>(), kAdd)),
       ...);
    }(std::make_integer_sequence<int, kBlockLines>());
    store(slab.scale[b], weights.scale(0));
    if constexpr (Weights::kHasMin) {
      store(slab.second[b], weights.min());
    } else if constexpr (Weights::kHalves) {
      store(slab.second[b], weights.scale(1));
    }
  }
}

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
      groups[g].enter(b);
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

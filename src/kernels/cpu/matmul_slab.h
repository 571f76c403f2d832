#pragma once
// Slabs: some blocks of a row group with one byte per weight (two for those of 8 bits where kWideSlabs), unpacked once
// for all tokens of a product.

#include <utility>

#include "kernels/cpu/matmul_formats.h"
#include "kernels/cpu/matmul_vec.h"
#include "kernels/cpu/matmul_weights.h"

namespace tessera::TESSERA_ISA {

inline constexpr int64_t kSlabBlocks = 24;  // a multiple of 8; two slabs with 6 tokens' activations: 45 KiB

/// Some blocks of a group.
struct Slab {
  alignas(64) std::byte lines[kSlabBlocks * kBlockLines][kLineBytes];
  /// As PackedWeights has them: scale, start; then scale and start of the second half, or min and min_difference.
  float heads[kSlabBlocks][4][kGroupRows];

  void set_scale(int64_t b, int half, F32x16 scale) {
    store(heads[b][2 * half], scale);
    store(heads[b][2 * half + 1], scale * splat(-kSumStartValue));
  }
};

/// Parameters are only what differs in a tile, so that formats share slab tiles.
template <int kSlabBits, int kSlabQuantOffset, bool kSlabHasMin, bool kSlabHalfMins, bool kSlabHalves,
          bool kSlabConverts>
class SlabWeights {
 public:
  static constexpr int kBits = kSlabBits;
  static constexpr int kLines = kBits == 16 ? 2 * kBlockLines : kBlockLines;
  static constexpr int64_t kBlocks = kSlabBlocks * kBlockLines / kLines;
  static constexpr int kOffset = kSlabQuantOffset;
  static constexpr bool kHasMin = kSlabHasMin;
  static constexpr bool kHalfMins = kSlabHalfMins;
  static constexpr bool kHalves = kSlabHalves;
  static constexpr bool kConverts = kSlabConverts;
  static constexpr bool kFromSlab = true;

  /// slab: of the first group; those of further groups follow.
  explicit SlabWeights(const Slab& slab) : slab_(&slab) {}
  [[nodiscard]] SlabWeights group(int i) const { return SlabWeights(slab_[i]); }
  template <int kGroups>
  void enter(int64_t b) {
    b_ = b;
  }
  template <int j>
  [[nodiscard]] Bytes line() const {
    return load_bytes(slab_->lines[b_ * kLines + j]);
  }
  [[nodiscard]] F32x16 scale(int half) const { return load(slab_->heads[b_][2 * half]); }
  [[nodiscard]] F32x16 start(int half) const { return load(slab_->heads[b_][2 * half + 1]); }
  [[nodiscard]] F32x16 min() const { return load(slab_->heads[b_][2]); }
  [[nodiscard]] F32x16 min_difference() const { return load(slab_->heads[b_][3]); }

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
constexpr int slab_bits() {
  if (Weights::kHasMin) {
    return Weights::kBits > 5 ? 6 : 5;
  }
  if (slab_offset<Weights>() == 128) {
    return kWideSlabs ? 16 : 8;
  }
  return slab_offset<Weights>() == 64 ? 7 : slab_offset<Weights>() == 32 ? 6 : 5;
}
template <class Weights>
using SlabOf = SlabWeights<slab_bits<Weights>(), slab_offset<Weights>(), Weights::kHasMin, Weights::kHalfMins,
                           Weights::kHalves, Weights::kConverts>;

/// Unpacks blocks [begin, begin + n) of a group, n <= SlabOf<...>::kBlocks. streams: what follows is asked for ahead.
template <PackedFormat kFormat>
void fill_slab(PackedWeights<kFormat> weights, int64_t begin, int64_t n, Slab& slab, bool streams) {
  using Weights = PackedWeights<kFormat>;
  constexpr int kAdd = slab_offset<Weights>() - Weights::kOffset;
  constexpr int kLines = SlabOf<Weights>::kLines;
  for (int64_t b = 0; b < n; ++b) {
    weights.template enter<0>(begin + b);
    if (streams) {
      weights.template ask_ahead<1>();
    }
    const auto unpack = [&]<int j>() {
      const Bytes line = kAdd == 0 ? weights.template line<j>() : add_bytes(weights.template line<j>(), kAdd);
      auto* at = slab.lines + b * kLines;
      if constexpr (SlabOf<Weights>::kBits == 16) {
        store_bytes(at[2 * j], widen_columns<0>(line, slab_offset<Weights>()));
        store_bytes(at[2 * j + 1], widen_columns<1>(line, slab_offset<Weights>()));
      } else {
        store_bytes(at[j], line);
      }
    };
    [&]<int... j>(std::integer_sequence<int, j...>) {
      (unpack.template operator()<j>(), ...);
    }(std::make_integer_sequence<int, kBlockLines>());
    slab.set_scale(b, 0, weights.scale(0));
    if constexpr (Weights::kHasMin) {
      store(slab.heads[b][2], weights.min());
    } else if constexpr (Weights::kHalves) {
      slab.set_scale(b, 1, weights.scale(1));
    }
    if constexpr (Weights::kHalfMins) {
      store(slab.heads[b][3], weights.min_difference());
    }
  }
}

}  // namespace tessera::TESSERA_ISA

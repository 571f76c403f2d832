#pragma once
// How a packed panel's weights are read (matmul_formats.h): lines and scales of one block of a row group at a time.

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/matmul_formats.h"
#include "kernels/cpu/matmul_vec.h"
#include "kernels/ops/quantize.h"
#include "tensor/iq_grids.h"

namespace tessera::TESSERA_ISA {

/// How far ahead of its use a line of weights is asked for. A decode waits for memory: with four groups read side by
/// side and this distance a Sapphire Rapids core reads 13-15 GB/s where one group without asking gives 8 (matmul_bench,
/// busy machine).
template <int kGroups>
inline constexpr int64_t kPrefetchBytes = kGroups > 1 ? 1024 : 4096;

/// The 128 + value of each IQ4 code, the 16 + value of each E2M1 code.
template <CodeMeaning kMeaning>
inline constexpr ByteTable kCodeValues = [] {
  ByteTable table = {};
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<uint8_t>(kMeaning == CodeMeaning::kIq4 ? 128 + kIq4Values[i] : 16 + kFp4Values[i]);
  }
  return table;
}();

/// Sixteen bytes as integers.
inline I32x16 load_integers(const std::byte* p) {
  const F32x16 magic = splat(8388608.0F);  // 2^23: an integer added to it is in the low bits
  return bits(load_u8(p) + magic) - bits(magic);
}
/// 2^(e - 128) for sixteen E8M0 exponents, half their value as the weights are doubled; in two factors, as the smallest
/// are denormal.
inline F32x16 load_exponents(const std::byte* p) {
  const I32x16 e = load_integers(p);
  const I32x16 half = shift_right<1>(e);
  const I32x16 bias = splat_int(63);
  return as_float(shift_left<23>(half + bias)) * as_float(shift_left<23>(e - half + bias));
}
/// The weights of one group, as packed. The high bits of a block are loaded once, when it is entered.
template <PackedFormat kFormat>
class PackedWeights {
 public:
  static constexpr ScaleKind kKind = kFormat.kind;
  static constexpr int kBits = kFormat.weight_bits();
  static constexpr int kOffset = kFormat.offset;
  static constexpr bool kHalfMins = kKind == ScaleKind::kFoldedMin;
  static constexpr bool kHasMin = kKind == ScaleKind::kMin || kKind == ScaleKind::kSuperMin || kHalfMins;
  static constexpr bool kConverts = kKind == ScaleKind::kExponents;
  static constexpr bool kFromSlab = false;
  static constexpr int kLines = kBlockLines;
  static constexpr bool kHalves = kKind == ScaleKind::kSuperHalves || kKind == ScaleKind::kFloatHalves;

  /// group_bytes: of a group.
  PackedWeights(const std::byte* group, int64_t group_bytes) : group_(group), group_bytes_(group_bytes) {}
  /// The weights of the i-th group after this one.
  [[nodiscard]] PackedWeights group(int i) const { return {group_ + i * group_bytes_, group_bytes_}; }

  /// Blocks [begin, begin + n), with the heads of their units; begin: a multiple of unit_blocks().
  [[nodiscard]] std::span<const std::byte> bytes(int64_t begin, int64_t n) const {
    const int64_t from = kFormat.head_at(begin);
    return {group_ + from, static_cast<size_t>(kFormat.quants_at(begin + n - 1) + kFormat.quant_bytes() - from)};
  }

  /// kGroups: how many groups are read side by side; 0: nothing is asked for ahead.
  template <int kGroups>
  void enter(int64_t b) {
    quants_ = group_ + kFormat.quants_at(b);
    head_ = group_ + kFormat.head_at(b);
    within_ = b % kFormat.unit_blocks();
    if constexpr (kGroups > 0) {
      ask_ahead<kGroups>();
    }
    if constexpr (kFormat.bits == 3) {
      high_[0] = load_bytes(quants_ + 2 * kLineBytes);
    } else if constexpr (kFormat.bits == 5 || kFormat.bits == 6) {
      high_[0] = load_bytes(quants_ + 4 * kLineBytes);
    }
    if constexpr (kFormat.bits == 6) {
      high_[1] = load_bytes(quants_ + 5 * kLineBytes);
    }
    if constexpr (kKind == ScaleKind::kFoldedMin) {
      factor_[0] = spread_factors(row_bytes(head_ + 64 + 32 * within_));
      factor_[1] = spread_factors(row_bytes(head_ + 64 + 32 * within_ + 16));
    } else if constexpr (kKind == ScaleKind::kFolded) {
      for (int half = 0; half < 2; ++half) {
        factor_[half] = row_bytes(head_ + 32 * within_ + 16 * half);
        // (code - 4) * factor + 128 = code * factor + addend_, modulo 256
        addend_[half] = splat_byte(128) - field<-2, 0xFC>(factor_[half]);
      }
    }
  }

  /// Weights plus kOffset.
  template <int j>
  [[nodiscard]] Bytes line() const {
    const Bytes codes = code_line<j>();
    if constexpr (kFormat.meaning == CodeMeaning::kIq4 || kFormat.meaning == CodeMeaning::kFp4) {
      return lookup(codes, kCodeValues<kFormat.meaning>);
    } else if constexpr (kKind == ScaleKind::kFoldedMin) {
      return times_small(codes, factor_[j / 4]);
    } else if constexpr (kKind == ScaleKind::kFolded) {
      return codes * factor_[j / 4] + addend_[j / 4];
    } else {
      return codes;
    }
  }

  /// [16] scales of the block; kHalves: of one half of it.
  [[nodiscard]] F32x16 scale(int half) const {
    if constexpr (kKind == ScaleKind::kOffset) {
      return load_f16(f16_at(32 * (within_ / kFormat.scale_blocks)));
    } else if constexpr (kKind == ScaleKind::kMin || kKind == ScaleKind::kFoldedMin) {
      return load_f16(f16_at(0));
    } else if constexpr (kKind == ScaleKind::kExponents) {
      return load_exponents(head_ + 16 * within_);
    } else if constexpr (kKind == ScaleKind::kFloatHalves) {
      return load_small_floats(head_ + 32 * within_ + 16 * half) *
             splat(128);  // half a UE4M3, as the weights are doubled
    } else if constexpr (kKind == ScaleKind::kSuper) {
      return load_f16(f16_at(0)) * load_i8(i8_at(64 + 16 * within_));
    } else if constexpr (kKind == ScaleKind::kSuperMin) {
      return load_f16(f16_at(0)) * load_u8(head_ + 64 + 32 * within_);
    } else if constexpr (kKind == ScaleKind::kFolded) {
      return load_f16(f16_at(256));
    } else {
      return load_f16(f16_at(256)) * load_i8(i8_at(32 * within_ + 16 * half));
    }
  }

  /// [16] what the sum of the activations is multiplied with.
  [[nodiscard]] F32x16 min() const {
    if constexpr (kKind == ScaleKind::kSuperMin) {
      return splat(-0.0F) - load_f16(f16_at(32)) * load_u8(head_ + 64 + 32 * within_ + 16);
    } else if constexpr (kKind == ScaleKind::kFoldedMin) {
      return splat(-0.0F) - load_f16(f16_at(32)) * (half_min(1) + splat(8));
    } else {
      return load_f16(f16_at(32));
    }
  }
  /// [16] minus kSumStart's share of a scaled sum.
  [[nodiscard]] F32x16 start(int half) const { return scale(half) * splat(-kSumStartValue); }
  /// [16] what m_first of the activations is multiplied with.
  [[nodiscard]] F32x16 min_difference() const { return load_f16(f16_at(32)) * (half_min(1) - half_min(0)); }

  /// Asks for what is read soon after the block that was entered. Of groups that are read side by side, each goes on
  /// where the next ones begin: behind the last of them. Always inlined: g++ 12 drops calls that only prefetch.
  template <int kGroups>
  [[gnu::always_inline]] void ask_ahead() const {
    constexpr int64_t kBlockBytes = kFormat.unit_bytes() / kFormat.unit_blocks();
    const std::byte* const next = quants_ + kPrefetchBytes<kGroups>;
    const std::byte* const ahead = next < group_ + group_bytes_ ? next : next + (kGroups - 1) * group_bytes_;
#pragma GCC unroll 16
    for (int64_t line = 0; line < kBlockBytes; line += kLineBytes) {
      __builtin_prefetch(ahead + line);
    }
  }

 private:
  [[nodiscard]] const uint16_t* f16_at(int64_t at) const { return reinterpret_cast<const uint16_t*>(head_ + at); }
  [[nodiscard]] const int8_t* i8_at(int64_t at) const { return reinterpret_cast<const int8_t*>(head_ + at); }
  /// kFoldedMin: the minimum's factor of a half, minus 8.
  [[nodiscard]] F32x16 half_min(int half) const {
    return load_high_nibbles(reinterpret_cast<const uint8_t*>(head_ + 64 + 32 * within_ + 16 * half));
  }

  template <int j>
  [[nodiscard]] Bytes code_line() const {
    constexpr int kCodeBits = kFormat.bits;
    if constexpr (kCodeBits == 8) {
      return load_bytes(quants_ + j * kLineBytes);
    } else if constexpr (kCodeBits == 1) {
      constexpr int kTo = kFormat.meaning == CodeMeaning::kTwice ? 1 : 0;
      return field<j - kTo, 1 << kTo>(load_bytes(quants_));
    } else if constexpr (kCodeBits < 4) {
      const Bytes low = field<2 * (j % 4), 3>(load_bytes(quants_ + j / 4 * kLineBytes));
      if constexpr (kCodeBits == 3) {
        return join_bits<2 - j, 4>(low, high_[0]);
      } else {
        return low;
      }
    } else {
      const Bytes folded = load_bytes(quants_ + j % 4 * kLineBytes);
      const Bytes low = j < 4 ? low_nibbles(folded) : high_nibbles(folded);
      if constexpr (kCodeBits == 5) {
        return join_bits<4 - j, 0x10>(low, high_[0]);
      } else if constexpr (kCodeBits == 6) {
        return join_bits<4 - 2 * (j % 4), 0x30>(low, high_[j / 4]);
      } else {
        return low;
      }
    }
  }

  const std::byte* group_;
  int64_t group_bytes_;
  const std::byte* quants_ = nullptr;
  const std::byte* head_ = nullptr;
  int64_t within_ = 0;
  Bytes high_[2] = {};
  Bytes factor_[2] = {};
  Bytes addend_[2] = {};
};

}  // namespace tessera::TESSERA_ISA

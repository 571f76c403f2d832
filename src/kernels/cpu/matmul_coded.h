#pragma once
// Weights whose GGUF blocks name rows of a codebook (IQ1, IQ2, IQ3) or digits (TQ1_0): decoded to a slab of bytes and
// scales, for few tokens as for many. Sixteen rows are decoded side by side, from 16-bit words of each. A weight is
// the exact integer below, its float scale the rest of the format's formula (tensor/quants.h):
//   IQ2_XXS, IQ2_XS, IQ2_S   signed grid value; d * (0.5 + s) / 4, per 32, 16, 16 columns
//   IQ3_XXS, IQ3_S           signed grid value; d * (0.5 + s) / 2, d * (1 + 2 s), per 32
//   IQ1_S, IQ1_M             8 * grid value +- 1; d * (2 s + 1) / 8, per 32, 16
//   TQ1_0                    digit - 1; d

#include <array>
#include <cstdint>
#include <utility>

#include "kernels/cpu/matmul_codes.h"
#include "kernels/cpu/matmul_formats.h"
#include "kernels/cpu/matmul_slab.h"
#include "kernels/cpu/matmul_vec.h"

namespace tessera::TESSERA_ISA {

/// The weights of one group of a coded format.
template <DType kDType>
class CodedWeights {
 public:
  static constexpr bool kHasMin = false;
  static constexpr bool kHalfMins = false;
  static constexpr bool kConverts = false;
  /// IQ1_M too: its weights times its scales would need more than 8 bits.
  static constexpr bool kHalves = kDType == DType::kIQ2_XS || kDType == DType::kIQ2_S || kDType == DType::kIQ1_M;
  static constexpr bool kSevenBits =
      kDType == DType::kIQ2_XXS || kDType == DType::kIQ2_XS || kDType == DType::kIQ2_S || kDType == DType::kIQ3_XXS;
  static constexpr int kBits = kSevenBits ? 7 : 5;
  static constexpr int kOffset = kSevenBits ? 64 : 16;

  CodedWeights(const std::byte* group, int64_t group_bytes) : group_(group), group_bytes_(group_bytes) {}
  [[nodiscard]] CodedWeights group(int i) const { return {group_ + i * group_bytes_, group_bytes_}; }
  /// The words of columns [256 i, 256 (i + 1)).
  [[nodiscard]] const std::byte* unit(int64_t i) const {
    return group_ + i * kGroupRows * dtype_info(kDType).block_bytes;
  }

 private:
  const std::byte* group_;
  int64_t group_bytes_;
};

/// A unit's words, and the blocks of a slab that they are decoded to.
struct CodedUnit {
  const std::byte* words;  // [block_bytes / 2, 16] u16
  Slab& slab;
  int64_t block;

  [[nodiscard]] const std::byte* at(int i) const { return words + i * 2 * kGroupRows; }
  [[nodiscard]] I32x16 word(int i) const { return load_words(at(i)); }
  [[nodiscard]] F32x16 f16(int i) const { return load_f16(reinterpret_cast<const uint16_t*>(at(i))); }
  /// Words i and i + 1 as one of 32 bits.
  [[nodiscard]] I32x16 double_word(int i) const { return word(i) | shift_left<16>(word(i + 1)); }

  void set_line(int b, int j, Bytes weights) const { store_bytes(slab.lines[block + b] + j * kLineBytes, weights); }
  void set_scale(int b, F32x16 scale) const { slab.set_scale(block + b, 0, scale); }
  void set_second(int b, F32x16 scale) const { slab.set_scale(block + b, 1, scale); }
};

/// Calls f.operator()<0>() ... <n - 1>().
template <int n, class Function>
inline void unrolled(Function f) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (f.template operator()<i>(), ...);
  }(std::make_integer_sequence<int, n>());
}

/// kBits bits of each lane from bit kFrom on.
template <int kFrom, int kBits>
inline I32x16 bits_of(I32x16 a) {
  return shift_right<kFrom>(a) & splat_int((1 << kBits) - 1);
}
/// Byte k of bytes that fill words from word i on.
template <int k>
inline I32x16 byte_of(const CodedUnit& unit, int i) {
  return bits_of<k % 2 * 8, 8>(unit.word(i + k / 2));
}

/// What codes stand for, plus kPlus: levels, then (from the sign bit on) the same negative.
template <int kPlus, size_t n>
constexpr ByteTable signed_levels(const std::array<int, n>& levels) {
  ByteTable table = {};
  for (size_t i = 0; i < n; ++i) {
    table[i] = static_cast<uint8_t>(kPlus + levels[i]);
    table[n + i] = static_cast<uint8_t>(kPlus - levels[i]);
  }
  return table;
}
template <int kPlus>
inline constexpr ByteTable kIq2Levels = signed_levels<kPlus>(std::array{8, 25, 43, 0});
template <int kPlus>
inline constexpr ByteTable kIq3xxsLevels = signed_levels<kPlus>(std::array{4, 12, 20, 28, 36, 44, 52, 62});
template <int kPlus>
inline constexpr ByteTable kIq3sLevels = signed_levels<kPlus>(std::array{1, 3, 5, 7, 9, 11, 13, 15});
/// 8 g + 1 of g + 1, then 8 g - 1.
template <int kPlus>
inline constexpr ByteTable kIq1Levels = {
    {{kPlus - 7, kPlus + 1, kPlus + 9, kPlus, kPlus - 9, kPlus - 1, kPlus + 7, kPlus}}};

/// Lines 2 k and 2 k + 1 of block b from the codes of 8 columns.
inline void set_lines(const CodedUnit& unit, int b, int k, I32x16 codes, const ByteTable& levels) {
  const Bytes both = as_bytes(codes);
  unit.set_line(b, 2 * k, lookup(low_nibbles(both), levels));
  unit.set_line(b, 2 * k + 1, lookup(high_nibbles(both), levels));
}

template <DType kDType, int kPlus>
void decode_iq2(const CodedUnit& unit) {
  const F32x16 d = unit.f16(0) * splat(0.25F);
  const auto scale = [&](I32x16 s) { return d * (splat(0.5F) + to_floats(s)); };
  unrolled<8>([&]<int b>() {
    if constexpr (kDType == DType::kIQ2_XXS) {
      const I32x16 bits = unit.double_word(3 + 4 * b);
      unit.set_scale(b, scale(bits_of<28, 4>(bits)));
      unrolled<4>([&]<int k>() {
        const I32x16 codes = gather(kIq2xxsCodes.data(), byte_of<k>(unit, 1 + 4 * b)) |
                             gather(kSigns<2, 128>.data(), bits_of<7 * k, 7>(bits));
        set_lines(unit, b, k, codes, kIq2Levels<kPlus>);
      });
    } else {
      const I32x16 scales = byte_of<b>(unit, kDType == DType::kIQ2_XS ? 33 : 37);
      unit.set_scale(b, scale(bits_of<0, 4>(scales)));
      unit.set_second(b, scale(bits_of<4, 4>(scales)));
      unrolled<4>([&]<int k>() {
        if constexpr (kDType == DType::kIQ2_XS) {
          const I32x16 word = unit.word(1 + 4 * b + k);
          const I32x16 codes =
              gather(kIq2xsCodes.data(), bits_of<0, 9>(word)) | gather(kSigns<2, 128>.data(), bits_of<9, 7>(word));
          set_lines(unit, b, k, codes, kIq2Levels<kPlus>);
        } else {
          const I32x16 high = bits_of<2 * k, 2>(byte_of<b>(unit, 33));
          const I32x16 codes = gather(kIq2sCodes.data(), byte_of<k>(unit, 1 + 2 * b) | shift_left<8>(high)) |
                               gather(kSigns<2, 256>.data(), byte_of<k>(unit, 17 + 2 * b));
          set_lines(unit, b, k, codes, kIq2Levels<kPlus>);
        }
      });
    }
  });
}

template <DType kDType, int kPlus>
void decode_iq3(const CodedUnit& unit) {
  constexpr bool kXxs = kDType == DType::kIQ3_XXS;
  const F32x16 d = unit.f16(0);
  unrolled<8>([&]<int b>() {
    I32x16 bits;  // XXS: signs and scale; S: ninth bits of indices
    if constexpr (kXxs) {
      bits = unit.double_word(33 + 2 * b);
      unit.set_scale(b, d * splat(0.5F) * (splat(0.5F) + to_floats(bits_of<28, 4>(bits))));
    } else {
      bits = byte_of<b>(unit, 33);
      const I32x16 s = bits_of<b % 4 * 4, 4>(unit.word(53 + b / 4));
      unit.set_scale(b, d * to_floats(s + s + splat_int(1)));
    }
    unrolled<4>([&]<int k>() {
      const I32x16 word = unit.word(1 + 4 * b + k);
      I32x16 first = bits_of<0, 8>(word);
      I32x16 second = bits_of<8, 8>(word);
      I32x16 signs;
      const uint32_t* table = kIq3xxsCodes.data();
      if constexpr (kXxs) {
        signs = gather(kSigns<3, 128>.data(), bits_of<7 * k, 7>(bits));
      } else {
        signs = gather(kSigns<3, 256>.data(), byte_of<k>(unit, 37 + 2 * b));
        first = first | shift_left<8>(bits_of<2 * k, 1>(bits));
        second = second | shift_left<8>(bits_of<2 * k + 1, 1>(bits));
        table = kIq3sCodes.data();
      }
      const I32x16 codes = gather(table, first) | shift_left<4>(gather(table, second)) | signs;
      set_lines(unit, b, k, codes, kXxs ? kIq3xxsLevels<kPlus> : kIq3sLevels<kPlus>);
    });
  });
}

/// The four top nibbles of an IQ1_M block's words of scales.
inline F32x16 iq1_m_scale(const CodedUnit& unit) {
  uint16_t halves[kGroupRows];
  for (int64_t r = 0; r < kGroupRows; ++r) {
    uint32_t half = 0;
    for (int i = 0; i < 4; ++i) {
      half |= static_cast<uint32_t>(unit.at(24 + i)[2 * r + 1] >> 4) << 4 * i;
    }
    halves[r] = static_cast<uint16_t>(half);
  }
  return load_f16(halves);
}

template <DType kDType, int kPlus>
void decode_iq1(const CodedUnit& unit) {
  constexpr bool kM = kDType == DType::kIQ1_M;
  const F32x16 d = (kM ? iq1_m_scale(unit) : unit.f16(0)) * splat(0.125F);
  const auto scale = [&](I32x16 s) { return d * to_floats(s + s + splat_int(1)); };
  unrolled<8>([&]<int b>() {
    const I32x16 bits = unit.word((kM ? 16 : 17) + b);  // M: nibbles of 3 index bits and a delta
    if constexpr (kM) {
      const I32x16 scales = unit.word(24 + b / 2);
      unit.set_scale(b, scale(bits_of<b % 2 * 6, 3>(scales)));
      unit.set_second(b, scale(bits_of<b % 2 * 6 + 3, 3>(scales)));
    } else {
      unit.set_scale(b, scale(bits_of<12, 3>(bits)));
    }
    unrolled<4>([&]<int k>() {
      const I32x16 high = bits_of<(kM ? 4 : 3) * k, 3>(bits);
      const I32x16 down = splat_int(0) - bits_of<kM ? 4 * k + 3 : 15, 1>(bits);  // 0 or all ones
      const I32x16 index = byte_of<k>(unit, (kM ? 0 : 1) + 2 * b) | shift_left<8>(high);
      set_lines(unit, b, k, gather(kIq1Codes.data(), index) | (down & splat_int(0x44444444)), kIq1Levels<kPlus>);
    });
  });
}

/// Digit n of bytes 0 - 31 is block n; of bytes 32 - 47 half a block from block 5 on; of bytes 48 - 51 the last lines.
template <int kPlus>
void decode_tq1_0(const CodedUnit& unit) {
  const Bytes zero_is = splat_byte(kPlus - 1);
  for (int i = 0; i < 13; ++i) {
    Bytes rest = as_bytes(unit.double_word(2 * i));
    for (int n = 0; n < (i < 12 ? 5 : 4); ++n) {
      const Bytes weights = take_digits(rest) + zero_is;
      if (i < 8) {
        unit.set_line(n, i, weights);
      } else if (i < 12) {
        unit.set_line(5 + n / 2, n % 2 * 4 + i - 8, weights);
      } else {
        unit.set_line(7, 4 + n, weights);
      }
    }
  }
  for (int b = 0; b < 8; ++b) {
    unit.set_scale(b, unit.f16(26));
  }
}

/// Decodes blocks [begin, begin + n) of a group, multiples of 8.
template <DType kDType>
void fill_slab(CodedWeights<kDType> weights, int64_t begin, int64_t n, Slab& slab) {
  constexpr int kPlus = slab_offset<CodedWeights<kDType>>();
  for (int64_t b = 0; b < n; b += 8) {
    const CodedUnit unit = {weights.unit((begin + b) / 8), slab, b};
    if constexpr (kDType == DType::kTQ1_0) {
      decode_tq1_0<kPlus>(unit);
    } else if constexpr (kDType == DType::kIQ1_S || kDType == DType::kIQ1_M) {
      decode_iq1<kDType, kPlus>(unit);
    } else if constexpr (kDType == DType::kIQ3_XXS || kDType == DType::kIQ3_S) {
      decode_iq3<kDType, kPlus>(unit);
    } else {
      decode_iq2<kDType, kPlus>(unit);
    }
  }
}

}  // namespace tessera::TESSERA_ISA

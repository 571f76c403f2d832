#pragma once
// Weights whose GGUF blocks name rows of a codebook (IQ1, IQ2, IQ3) or digits (TQ1_0): decoded to a slab of bytes and
// scales, for few tokens as for many. Sixteen rows are decoded side by side, from 32-bit words of each. A weight is
// the exact integer below, its float scale the rest of the format's formula (tensor/quants.h):
//   IQ2_XXS, IQ2_XS, IQ2_S   signed grid value; d * (0.5 + s) / 4, per 32, 16, 16 columns
//   IQ3_XXS, IQ3_S           signed grid value; d * (0.5 + s) / 2, d * (1 + 2 s), per 32
//   IQ1_S, IQ1_M             8 * grid value +- 1; d * (2 s + 1) / 8, per 32, 16
//   TQ1_0                    digit - 1; d

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
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
  [[nodiscard]] const std::byte* words(int64_t i) const { return group_ + i * kBlock.n_words * kLineBytes; }
  /// [16] d of the same columns.
  [[nodiscard]] const uint16_t* scales(int64_t i) const {
    const std::byte* all = words(group_bytes_ / kBlock.group_bytes());
    return reinterpret_cast<const uint16_t*>(all) + i * kGroupRows;
  }

  /// The words of blocks [begin, begin + n), multiples of 8.
  [[nodiscard]] std::span<const std::byte> bytes(int64_t begin, int64_t n) const {
    return {words(begin / 8), static_cast<size_t>(n / 8 * kBlock.n_words * kLineBytes)};
  }

  /// Asks for what follows columns [256 i, 256 (i + 1)), which are about to be read: the words two blocks later, also
  /// those of the next group, and the next group's d. Always inlined: g++ 12 drops calls that only prefetch.
  [[gnu::always_inline]] void ask_ahead(int64_t i) const {
    for (int64_t word = 0; word < kBlock.n_words; ++word) {
      __builtin_prefetch(words(i + 2) + word * kLineBytes);
    }
    __builtin_prefetch(reinterpret_cast<const std::byte*>(scales(i)) + group_bytes_);
  }

 private:
  static constexpr CodedBlock kBlock = coded_block(kDType);
  const std::byte* group_;
  int64_t group_bytes_;
};

/// 256 columns of a group, and the blocks of a slab that they are decoded to.
struct CodedUnit {
  const std::byte* words;  // [n_words, 16] u32
  const uint16_t* scales;  // [16] f16
  Slab& slab;
  int64_t block;

  [[nodiscard]] I32x16 word(int i) const { return load_ints(words + i * kLineBytes); }
  [[nodiscard]] F32x16 d() const { return load_f16(scales); }

  void set_line(int b, int j, Bytes weights) const { store_bytes(slab.lines[(block + b) * kBlockLines + j], weights); }
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
/// Byte k of each lane.
template <int k>
inline I32x16 byte_of(I32x16 a) {
  return bits_of<8 * k, 8>(a);
}

/// What codes stand for, plus kPlus.
template <int kPlus, size_t n>
constexpr ByteTable levels_table(const std::array<int, n>& levels) {
  ByteTable table = {};
  for (size_t i = 0; i < n; ++i) {
    table[i] = static_cast<uint8_t>(kPlus + levels[i]);
  }
  return table;
}
template <int kPlus>
inline constexpr ByteTable kIq2Levels = levels_table<kPlus>(std::array{8, 25, 43});
template <int kPlus>
inline constexpr ByteTable kIq3xxsLevels = levels_table<kPlus>(std::array{4, 12, 20, 28, 36, 44, 52, 62});
template <int kPlus>
inline constexpr ByteTable kIq3sLevels = levels_table<kPlus>(std::array{1, 3, 5, 7, 9, 11, 13, 15});
/// 8 g + 1 of g + 1, then 8 g - 1.
template <int kPlus>
inline constexpr ByteTable kIq1Levels = levels_table<kPlus>(std::array{-7, 1, 9, 0, -9, -1, 7});

/// 0x80 where the bits of an index are odd in number.
inline constexpr ByteTable kOddParity = {{0, 0x80, 0x80, 0, 0x80, 0, 0, 0x80, 0x80, 0, 0, 0x80, 0, 0x80, 0x80, 0}};

/// Signs of 8 columns in each byte from their first 7: the number of negative ones is even.
[[gnu::always_inline]] inline Bytes all_signs(I32x16 sevens) {
  const Bytes s = as_bytes(sevens);
  return s + lookup(low_nibbles(s), kOddParity) + lookup(high_nibbles(s), kOddParity);
}
/// The same from 28 adjacent bits.
[[gnu::always_inline]] inline Bytes all_signs_of_28(I32x16 bits) {
  return all_signs((bits & splat_int(0x7F)) | (shift_left<1>(bits) & splat_int(0x7F00)) |
                   (shift_left<2>(bits) & splat_int(0x7F0000)) | (shift_left<3>(bits) & splat_int(0x7F000000)));
}

/// Lines 2 k and 2 k + 1 of block b from the codes of 8 columns and bits 8 k .. 8 k + 7 of signs.
template <int k, int kPlus>
[[gnu::always_inline]] inline void set_signed_lines(const CodedUnit& unit, int b, I32x16 codes, const ByteTable& levels,
                                                    Bytes signs) {
  const Bytes both = as_bytes(codes);
  unit.set_line(b, 2 * k, mirror<8 * k, kPlus>(lookup(low_nibbles(both), levels), signs));
  unit.set_line(b, 2 * k + 1, mirror<8 * k + 4, kPlus>(lookup(high_nibbles(both), levels), signs));
}

template <DType kDType, int kPlus>
void decode_iq2(const CodedUnit& unit) {
  const F32x16 d = unit.d() * splat(0.25F);
  const auto scale = [&](I32x16 s) { return d * (splat(0.5F) + to_floats(s)); };
  unrolled<8>([&]<int b>() {
    if constexpr (kDType == DType::kIQ2_XXS) {
      const I32x16 bits = unit.word(2 * b + 1);
      unit.set_scale(b, scale(bits_of<28, 4>(bits)));
      const Bytes signs = all_signs_of_28(bits);
      unrolled<4>([&]<int k>() {
        const I32x16 codes = gather(kIq2xxsCodes.data(), byte_of<k>(unit.word(2 * b)));
        set_signed_lines<k, kPlus>(unit, b, codes, kIq2Levels<kPlus>, signs);
      });
    } else {
      constexpr bool kXs = kDType == DType::kIQ2_XS;
      const I32x16 scales = byte_of<b % 4>(unit.word((kXs ? 16 : 18) + b / 4));
      unit.set_scale(b, scale(bits_of<0, 4>(scales)));
      unit.set_second(b, scale(bits_of<4, 4>(scales)));
      if constexpr (kXs) {
        const I32x16 first = unit.word(2 * b);  // 9 bits of an index, then 7 signs
        const I32x16 second = unit.word(2 * b + 1);
        const Bytes signs =
            all_signs((shift_right<9>(first) & splat_int(0x7F)) | (shift_right<17>(first) & splat_int(0x7F00)) |
                      (shift_left<7>(second) & splat_int(0x7F0000)) | (shift_right<1>(second) & splat_int(0x7F000000)));
        unrolled<4>([&]<int k>() {
          const I32x16 codes = gather(kIq2xsCodes.data(), bits_of<k % 2 * 16, 9>(k < 2 ? first : second));
          set_signed_lines<k, kPlus>(unit, b, codes, kIq2Levels<kPlus>, signs);
        });
      } else {
        const Bytes signs = as_bytes(unit.word(8 + b));
        const I32x16 high = byte_of<b % 4>(unit.word(16 + b / 4));
        unrolled<4>([&]<int k>() {
          const I32x16 index = byte_of<k>(unit.word(b)) | shift_left<8>(bits_of<2 * k, 2>(high));
          set_signed_lines<k, kPlus>(unit, b, gather(kIq2sCodes.data(), index), kIq2Levels<kPlus>, signs);
        });
      }
    }
  });
}

template <DType kDType, int kPlus>
void decode_iq3(const CodedUnit& unit) {
  constexpr bool kXxs = kDType == DType::kIQ3_XXS;
  const F32x16 d = unit.d();
  unrolled<8>([&]<int b>() {
    Bytes signs;
    I32x16 ninths = {};  // S: ninth bits of indices
    if constexpr (kXxs) {
      const I32x16 bits = unit.word(16 + b);
      signs = all_signs_of_28(bits);
      unit.set_scale(b, d * splat(0.5F) * (splat(0.5F) + to_floats(bits_of<28, 4>(bits))));
    } else {
      signs = as_bytes(unit.word(18 + b));
      ninths = byte_of<b % 4>(unit.word(16 + b / 4));
      const I32x16 s = bits_of<4 * b, 4>(unit.word(26));
      unit.set_scale(b, d * to_floats(s + s + splat_int(1)));
    }
    unrolled<8>([&]<int j>() {
      I32x16 index = byte_of<j % 4>(unit.word(2 * b + j / 4));
      if constexpr (!kXxs) {
        index = index | shift_left<8>(bits_of<j, 1>(ninths));
      }
      const Bytes codes = as_bytes(gather(kXxs ? kIq3xxsCodes.data() : kIq3sCodes.data(), index));
      const Bytes levels = lookup(codes, kXxs ? kIq3xxsLevels<kPlus> : kIq3sLevels<kPlus>);
      unit.set_line(b, j, mirror<4 * j, kPlus>(levels, signs));
    });
  });
}

/// The four top nibbles of an IQ1_M block's 16-bit scales.
inline F32x16 iq1_m_scale(const CodedUnit& unit) {
  const I32x16 first = unit.word(12);
  const I32x16 second = unit.word(13);
  const I32x16 d = bits_of<12, 4>(first) | shift_left<4>(bits_of<28, 4>(first)) |
                   shift_left<8>(bits_of<12, 4>(second)) | shift_left<12>(bits_of<28, 4>(second));
  alignas(kLineBytes) std::array<uint32_t, kGroupRows> words;
  store_bytes(reinterpret_cast<std::byte*>(words.data()), as_bytes(d));
  std::array<uint16_t, kGroupRows> halves;
  std::transform(words.begin(), words.end(), halves.begin(), [](uint32_t x) { return static_cast<uint16_t>(x); });
  return load_f16(halves.data());
}

template <DType kDType, int kPlus>
void decode_iq1(const CodedUnit& unit) {
  constexpr bool kM = kDType == DType::kIQ1_M;
  const F32x16 d = (kM ? iq1_m_scale(unit) : unit.d()) * splat(0.125F);
  const auto scale = [&](I32x16 s) { return d * to_floats(s + s + splat_int(1)); };
  unrolled<8>([&]<int b>() {
    constexpr int kHalf = b % 2 * 16;
    const I32x16 bits = unit.word(8 + b / 2);  // in this half, M: nibbles of 3 index bits and a delta
    if constexpr (kM) {
      constexpr int kAt = b / 2 % 2 * 16 + b % 2 * 6;
      const I32x16 scales = unit.word(12 + b / 4);
      unit.set_scale(b, scale(bits_of<kAt, 3>(scales)));
      unit.set_second(b, scale(bits_of<kAt + 3, 3>(scales)));
    } else {
      unit.set_scale(b, scale(bits_of<kHalf + 12, 3>(bits)));
    }
    unrolled<4>([&]<int k>() {
      const I32x16 high = bits_of<kHalf + (kM ? 4 : 3) * k, 3>(bits);
      const I32x16 down = splat_int(0) - bits_of<kHalf + (kM ? 4 * k + 3 : 15), 1>(bits);  // 0 or all ones
      const I32x16 index = byte_of<k>(unit.word(b)) | shift_left<8>(high);
      const Bytes both = as_bytes(gather(kIq1Codes.data(), index) | (down & splat_int(0x44444444)));
      unit.set_line(b, 2 * k, lookup(low_nibbles(both), kIq1Levels<kPlus>));
      unit.set_line(b, 2 * k + 1, lookup(high_nibbles(both), kIq1Levels<kPlus>));
    });
  });
}

/// Digit n of bytes 0 - 31 is block n; of bytes 32 - 47 half a block from block 5 on; of bytes 48 - 51 the last lines.
template <int kPlus>
void decode_tq1_0(const CodedUnit& unit) {
  const Bytes zero_is = splat_byte(kPlus - 1);
  for (int i = 0; i < 13; ++i) {
    Bytes rest = as_bytes(unit.word(i));
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
    unit.set_scale(b, unit.d());
  }
}

/// Decodes blocks [begin, begin + n) of a group, multiples of 8. streams: what follows is asked for ahead.
template <DType kDType>
void fill_slab(CodedWeights<kDType> weights, int64_t begin, int64_t n, Slab& slab, bool streams) {
  constexpr int kPlus = slab_offset<CodedWeights<kDType>>();
  for (int64_t b = 0; b < n; b += 8) {
    const int64_t i = (begin + b) / 8;
    const CodedUnit unit = {weights.words(i), weights.scales(i), slab, b};
    if (streams) {
      weights.ask_ahead(i);
    }
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

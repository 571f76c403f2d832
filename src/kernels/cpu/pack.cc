// Packs GGUF rows into groups (matmul_formats.h). A row's block becomes eight words of four unsigned quants, one per
// line; words are folded with whole-word operations, so that packing keeps up with reading a file.

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked.h"
#include "kernels/cpu/matmul_formats.h"
#include "kernels/cpu/matmul_kernels.h"

namespace tessera {
namespace {

using Words = std::array<uint32_t, kBlockLines>;  // byte i of word j: quant of column 4 j + i

constexpr uint32_t kEachByte = 0x01010101U;

uint32_t load_word(const std::byte* p) {
  uint32_t word = 0;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

void store_word(std::byte* p, uint32_t word) {
  std::memcpy(p, &word, sizeof(word));
}

/// 16 bytes of nibbles: low ones first, then high ones.
Words nibbles(const std::byte* p) {
  Words words;
#pragma GCC unroll 8
  for (size_t j = 0; j < 4; ++j) {
    const uint32_t word = load_word(p + 4 * j);
    words[j] = word & 0x0F * kEachByte;
    words[j + 4] = word >> 4 & 0x0F * kEachByte;
  }
  return words;
}

/// Sets bit 4 of column k's quant from bit k of `high`.
void add_fifth_bits(Words& words, uint32_t high) {
#pragma GCC unroll 8
  for (size_t j = 0; j < kBlockLines; ++j) {
    const uint32_t four = high >> 4 * j & 0x0F;
    words[j] |= (four * 0x00204081U & kEachByte) << 4;  // the product puts bit i at bit 8 i
  }
}

/// Run `shift / 2` of four runs of 32 columns that share 32 bytes, two bits each.
Words two_bits(const std::byte* p, size_t shift) {
  Words words;
#pragma GCC unroll 8
  for (size_t j = 0; j < kBlockLines; ++j) {
    words[j] = load_word(p + 4 * j) >> shift & 0x03 * kEachByte;
  }
  return words;
}

/// Codes of kBits bits that follow each other from bit 0 of byte 0.
template <size_t kBits>
Words packed_bits(const std::byte* p) {
  Words words = {};
#pragma GCC unroll 32
  for (size_t k = 0; k < 32; ++k) {
    const auto byte = static_cast<uint32_t>(p[k * kBits / 8]);
    words[k / 4] |= (byte >> k * kBits % 8 & ((1U << kBits) - 1)) << 8 * (k % 4);
  }
  return words;
}

/// Block b of a row as unsigned quants. `unit`: the GGUF block that holds it; b: index within that block.
template <DType dtype>
Words unsigned_quants(const std::byte* unit, size_t b) {
  Words words = {};
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kIQ4_NL: return nibbles(unit + 2);
    case DType::kIQ4_XS: return nibbles(unit + 8 + 16 * b);
    case DType::kMXFP4: return nibbles(unit + 1);
    case DType::kNVFP4: {  // nibbles of 16 columns are 8 bytes: low ones first
      const Words mixed = nibbles(unit + 4 + 16 * b);
      return {mixed[0], mixed[1], mixed[4], mixed[5], mixed[2], mixed[3], mixed[6], mixed[7]};
    }
    case DType::kQ1_0: return packed_bits<1>(unit + 2 + 4 * b);
    case DType::kQ2_0: return packed_bits<2>(unit + 2 + 8 * b);
    case DType::kTQ2_0: return two_bits(unit + b / 4 * 32, 2 * (b % 4));
    case DType::kQ2_K: return two_bits(unit + 16 + b / 4 * 32, 2 * (b % 4));
    case DType::kQ3_K: words = two_bits(unit + 32 + b / 4 * 32, 2 * (b % 4));
#pragma GCC unroll 8
      for (size_t j = 0; j < kBlockLines; ++j) {
        words[j] |= (load_word(unit + 4 * j) >> b & kEachByte) << 2;
      }
      return words;
    case DType::kQ4_1: return nibbles(unit + 4);
    case DType::kQ5_0:
      words = nibbles(unit + 6);
      add_fifth_bits(words, load_word(unit + 2));
      return words;
    case DType::kQ5_1:
      words = nibbles(unit + 8);
      add_fifth_bits(words, load_word(unit + 4));
      return words;
    case DType::kQ8_0:
#pragma GCC unroll 8
      for (size_t j = 0; j < kBlockLines; ++j) {
        words[j] = load_word(unit + 2 + 4 * j) ^ 0x80 * kEachByte;
      }
      return words;
    case DType::kQ4_K:
    case DType::kQ5_K: {
      const std::byte* low = unit + (dtype == DType::kQ4_K ? 16 : 48) + b / 2 * 32;
#pragma GCC unroll 8
      for (size_t j = 0; j < kBlockLines; ++j) {
        words[j] = load_word(low + 4 * j) >> 4 * (b % 2) & 0x0F * kEachByte;
        if (dtype == DType::kQ5_K) {
          words[j] |= (load_word(unit + 16 + 4 * j) >> b & kEachByte) << 4;
        }
      }
      return words;
    }
    case DType::kQ6_K: {
      const std::byte* low = unit + b / 4 * 64 + b % 2 * 32;
      const std::byte* high = unit + 128 + b / 4 * 32;
#pragma GCC unroll 8
      for (size_t j = 0; j < kBlockLines; ++j) {
        words[j] = (load_word(low + 4 * j) >> (b % 4 < 2 ? 0 : 4) & 0x0F * kEachByte) |
                   (load_word(high + 4 * j) >> 2 * (b % 4) & 0x03 * kEachByte) << 4;
      }
      return words;
    }
    default: CHECK(false);
  }
  return words;
}

/// Writes one row's words of a block into the block's lines. REQUIRES: the lines were zero.
template <int bits>
void store_quants(const Words& words, size_t row, std::byte* lines) {
  std::byte* at = lines + 4 * row;
  if (bits == 8) {
#pragma GCC unroll 8
    for (size_t j = 0; j < kBlockLines; ++j) {
      store_word(at + j * kLineBytes, words[j]);
    }
    return;
  }
  if (bits < 4) {
    uint32_t folded[3] = {};
#pragma GCC unroll 8
    for (size_t j = 0; j < kBlockLines; ++j) {
      if (bits == 1) {
        folded[0] |= words[j] << j;
      } else {
        folded[j / 4] |= (words[j] & 0x03 * kEachByte) << 2 * (j % 4);
        folded[2] |= (words[j] >> 2 & kEachByte) << j;
      }
    }
    for (int line = 0; line < bits; ++line) {
      store_word(at + line * kLineBytes, folded[line]);
    }
    return;
  }
#pragma GCC unroll 8
  for (size_t j = 0; j < 4; ++j) {
    store_word(at + j * kLineBytes, (words[j] & 0x0F * kEachByte) | (words[j + 4] & 0x0F * kEachByte) << 4);
  }
  uint32_t high[2] = {};
#pragma GCC unroll 8
  for (size_t j = 0; j < kBlockLines; ++j) {
    if (bits == 5) {
      high[0] |= (words[j] >> 4 & kEachByte) << j;
    } else if (bits == 6) {
      high[j / 4] |= (words[j] >> 4 & 0x03 * kEachByte) << 2 * (j % 4);
    }
  }
  for (int line = 4; line < bits; ++line) {
    store_word(at + line * kLineBytes, high[line - 4]);
  }
}

/// The 6-bit scale and minimum of block b of a Q4_K or Q5_K block. packed: its 12 bytes.
void unpack_scale_min(const std::byte* packed, size_t b, std::byte* scale, std::byte* min) {
  if (b < 4) {
    *scale = packed[b] & std::byte{63};
    *min = packed[b + 4] & std::byte{63};
  } else {
    *scale = (packed[b + 4] & std::byte{15}) | (packed[b - 4] >> 6 << 4);
    *min = packed[b + 4] >> 4 | (packed[b] >> 6 << 4);
  }
}

/// The 6-bit scale of half h of a Q3_K block, 0 .. 63. packed: its 12 bytes.
std::byte q3_k_scale(const std::byte* packed, size_t h) {
  const std::byte low = h < 8 ? packed[h] & std::byte{15} : packed[h - 8] >> 4;
  return low | (packed[8 + h % 4] >> h / 4 * 2 & std::byte{3}) << 4;
}

/// Writes what one row contributes to a unit's head at GGUF block `unit`, whose first block is block b of its unit.
void store_scales(const PackedFormat& format, const std::byte* unit, size_t b, size_t row, std::byte* head) {
  const auto copy_f16 = [&](size_t from, size_t to) { std::memcpy(head + to + 2 * row, unit + from, 2); };
  switch (format.kind) {
    case ScaleKind::kOffset:
      copy_f16(format.dtype == DType::kTQ2_0 ? 64 : 0, 32 * (b / static_cast<size_t>(format.scale_blocks)));
      return;
    case ScaleKind::kMin:
      copy_f16(0, 0);
      copy_f16(2, 32);
      return;
    case ScaleKind::kExponents: head[16 * b + row] = unit[0]; return;
    case ScaleKind::kFloatHalves:
      for (size_t i = 0; i < 4; ++i) {
        head[16 * i + row] = unit[i] == std::byte{0x7F} ? std::byte{0} : unit[i] & std::byte{0x7F};
      }
      return;
    case ScaleKind::kSuper:
      copy_f16(0, 0);
      for (size_t i = 0; i < 8; ++i) {
        const std::byte low = unit[4 + i / 2] >> 4 * (i % 2) & std::byte{15};
        const std::byte high = unit[2 + i / 4] >> 2 * (i % 4) & std::byte{3};
        head[64 + 16 * i + row] = static_cast<std::byte>(static_cast<int>(low | high << 4) - 32);
      }
      return;
    case ScaleKind::kSuperMin:
      copy_f16(0, 0);
      copy_f16(2, 32);
      for (size_t i = 0; i < 8; ++i) {
        std::byte* at = head + 64 + 32 * i + row;
        unpack_scale_min(unit + 4, i, at, at + 16);
      }
      return;
    case ScaleKind::kSuperHalves:
      for (size_t i = 0; i < 16; ++i) {
        head[16 * i + row] = unit[192 + i];
      }
      copy_f16(208, 256);
      return;
    case ScaleKind::kFolded:
      for (size_t i = 0; i < 16; ++i) {
        head[16 * i + row] = static_cast<std::byte>(32 - static_cast<int>(q3_k_scale(unit + 96, i)));
      }
      copy_f16(108, 256);
      head[256 + 2 * row + 1] ^= std::byte{0x80};  // the sign of a little-endian f16
      return;
    case ScaleKind::kFoldedMin:
      copy_f16(80, 0);
      copy_f16(82, 32);
      for (size_t i = 0; i < 16; ++i) {
        head[64 + 16 * i + row] = unit[i];
      }
      return;
    case ScaleKind::kCoded: return;
  }
}

/// Word by word, the blocks of all rows side by side.
void pack_coded(DType dtype, int64_t n_blocks, std::span<const std::byte* const> rows, std::byte* dst) {
  const int64_t block_bytes = dtype_info(dtype).block_bytes;
  const CodedBlock block = coded_block(dtype);
  const int64_t n = n_blocks / 8;
  std::byte* scales = dst + n * block.n_words * kLineBytes;
  for (int64_t i = 0; i < n; ++i) {
    for (size_t row = 0; row < rows.size(); ++row) {
      const std::byte* src = rows[row] + i * block_bytes;
      std::byte* at = dst + i * block.n_words * kLineBytes + 4 * row;
      for (int64_t word = 0; word < block.n_words; ++word) {
        std::memcpy(at + kLineBytes * word, src + block.words_at + 4 * word, 4);
      }
      if (block.d_at >= 0) {
        std::memcpy(scales + 2 * (kGroupRows * i + static_cast<int64_t>(row)), src + block.d_at, 2);
      }
    }
  }
}

/// Packs one group; rows.size() <= kGroupRows.
template <PackedFormat format>
void pack_group(int64_t n_blocks, std::span<const std::byte* const> rows, std::byte* dst) {
  std::fill_n(dst, format.group_bytes(n_blocks), std::byte{0});
  if constexpr (format.kind == ScaleKind::kCoded) {
    return pack_coded(format.dtype, n_blocks, rows, dst);
  }
  const int64_t gguf_blocks = dtype_info(format.dtype).block_elems / 32;  // blocks of 32 in one GGUF block
  const int64_t gguf_bytes = dtype_info(format.dtype).block_bytes;
  for (int64_t b = 0; b < n_blocks; ++b) {
    for (size_t row = 0; row < rows.size(); ++row) {
      const std::byte* unit = rows[row] + b / gguf_blocks * gguf_bytes;
      const auto within = static_cast<size_t>(b % gguf_blocks);
      store_quants<format.bits>(unsigned_quants<format.dtype>(unit, within), row, dst + format.quants_at(b));
      if (within == 0) {
        store_scales(format, unit, static_cast<size_t>(b % format.unit_blocks()), row, dst + format.head_at(b));
      }
    }
  }
}

/// Finds the dtype among kPackedFormats and packs all groups.
template <size_t kIndex = 0>
void pack_all(DType dtype, int64_t n_blocks, std::span<const std::byte* const> rows, std::byte* dst) {
  if constexpr (kIndex < std::size(kPackedFormats)) {
    constexpr PackedFormat kFormat = kPackedFormats[kIndex];
    if (dtype != kFormat.dtype) {
      return pack_all<kIndex + 1>(dtype, n_blocks, rows, dst);
    }
    for (size_t r = 0; r < rows.size(); r += kGroupRows) {
      pack_group<kFormat>(n_blocks, rows.subspan(r, std::min<size_t>(kGroupRows, rows.size() - r)), dst);
      dst += kFormat.group_bytes(n_blocks);
    }
  }
}

}  // namespace

int64_t PackedFormat::group_bytes(int64_t n_blocks) const {
  if (kind == ScaleKind::kCoded) {
    return static_cast<int64_t>(
        round_up(static_cast<uint64_t>(n_blocks / 8 * coded_block(dtype).group_bytes()), kLineBytes));
  }
  const int64_t rest = n_blocks % unit_blocks();
  return n_blocks / unit_blocks() * unit_bytes() + (rest == 0 ? 0 : head_bytes() + rest * quant_bytes());
}

uint64_t packed_bytes(DType dtype, int64_t rows, int64_t columns) {
  const int64_t groups = static_cast<int64_t>(div_up(static_cast<uint64_t>(rows), kGroupRows));
  return static_cast<uint64_t>(groups * packed_format(dtype)->group_bytes(columns / 32));
}

void pack_groups(DType dtype, int64_t columns, std::span<const std::byte* const> rows, std::byte* dst) {
  pack_all(dtype, columns / 32, rows, dst);
}

}  // namespace tessera

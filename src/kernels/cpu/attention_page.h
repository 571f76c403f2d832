#pragma once
// Keys and values of one KV page as float32 rows, for attention's kernel body (see vec.h). The values are exactly those
// of dequantize_row (tensor/quants.h).

#include <cstdint>
#include <cstring>

#include "kernels/cpu/vec.h"
#include "kernels/ops/kv_layout.h"

namespace tessera::TESSERA_ISA {

/// A head's dimensions in scratch: whole vectors, the rest zero.
inline int64_t padded_dim(int64_t dim) {
  return (dim + 15) / 16 * 16;
}

/// Rows of float32, one per place of a page.
struct BlockRows {
  const float* data;
  int64_t stride;
  [[nodiscard]] const float* row(int64_t place) const { return data + place * stride; }
};

/// Sixteen values of a row from element i, a multiple of 16; only the first n of the sixteen exist.
struct ReadF32 {
  static F32x16 at(const std::byte* row, int64_t i, int64_t n) {
    return load_n(reinterpret_cast<const float*>(row) + i, n);
  }
};
template <F32x16 (*kLoad)(const uint16_t*)>
struct Read16Bit {
  static F32x16 at(const std::byte* row, int64_t i, int64_t n) {
    const auto* half = reinterpret_cast<const uint16_t*>(row) + i;
    if (n >= 16) {
      return kLoad(half);
    }
    uint16_t some[16] = {};
    std::memcpy(some, half, static_cast<size_t>(n) * sizeof(uint16_t));
    return kLoad(some);
  }
};
inline float block_scale(const std::byte* block) {
  uint16_t half = 0;
  std::memcpy(&half, block, sizeof(half));
  return f16_value(half);
}
struct ReadQ8_0 {
  static F32x16 at(const std::byte* row, int64_t i, int64_t /*n*/) {
    const std::byte* block = row + i / 32 * 34;  // f16 scale, int8 [32]
    return load_i8(reinterpret_cast<const int8_t*>(block + 2 + i % 32)) * splat(block_scale(block));
  }
};
struct ReadQ4_0 {
  static F32x16 at(const std::byte* row, int64_t i, int64_t /*n*/) {
    const std::byte* block = row + i / 32 * 18;  // f16 scale, 16 bytes: low nibbles come first
    const auto* nibbles = reinterpret_cast<const uint8_t*>(block + 2);
    return (i % 32 == 0 ? load_low_nibbles(nibbles) : load_high_nibbles(nibbles)) * splat(block_scale(block));
  }
};

/// dst: [32, padded_dim(dim)] f32; writes rows [begin, end).
template <class Read>
inline void read_rows(const std::byte* src, int64_t src_row_bytes, int64_t dim, int64_t begin, int64_t end,
                      float* dst) {
  const int64_t padded = padded_dim(dim);
  const int64_t whole = dim / 16 * 16;
  for (int64_t place = begin; place < end; ++place) {
    const std::byte* row = src + place * src_row_bytes;
    float* out = dst + place * padded;
    for (int64_t i = 0; i < whole; i += 16) {
      store(out + i, Read::at(row, i, 16));
    }
    if (whole < dim) {
      store(out + whole, Read::at(row, whole, dim - whole));
    }
  }
}

/// Reads the pages of one KV head of a panel.
class PageReader {
 public:
  PageReader(const KvFormat& format, const KvPanel& panel, int64_t kv_head)
      : format_(format),
        base_(panel.base),
        page_bytes_(kv_page_bytes(format, panel.n_kv_heads)),
        k_row_(static_cast<int64_t>(row_bytes(format.k_type, static_cast<uint64_t>(format.k_dim)))),
        v_row_(static_cast<int64_t>(row_bytes(format.v_type, static_cast<uint64_t>(format.v_dim)))),
        k_offset_(kv_head * kPageTokens * k_row_),
        v_offset_(kv_k_bytes(format, panel.n_kv_heads) + kv_head * kPageTokens * v_row_) {}

  /// Keys at places [begin, end) of a page: the page itself where it holds such rows, else through scratch.
  [[nodiscard]] BlockRows keys(int64_t page, int64_t begin, int64_t end, float* scratch) const {
    return read(format_.k_type, base_ + page * page_bytes_ + k_offset_, k_row_, format_.k_dim, begin, end, scratch);
  }
  [[nodiscard]] BlockRows values(int64_t page, int64_t begin, int64_t end, float* scratch) const {
    return read(format_.v_type, base_ + page * page_bytes_ + v_offset_, v_row_, format_.v_dim, begin, end, scratch);
  }

 private:
  static BlockRows read(DType dtype, const std::byte* src, int64_t src_row_bytes, int64_t dim, int64_t begin,
                        int64_t end, float* scratch) {
    const int64_t padded = padded_dim(dim);
    switch (dtype) {
      case DType::kF32:
        if (padded == dim) {
          return {reinterpret_cast<const float*>(src), dim};
        }
        read_rows<ReadF32>(src, src_row_bytes, dim, begin, end, scratch);
        break;
      case DType::kF16: read_rows<Read16Bit<load_f16>>(src, src_row_bytes, dim, begin, end, scratch); break;
      case DType::kBF16: read_rows<Read16Bit<load_bf16>>(src, src_row_bytes, dim, begin, end, scratch); break;
      case DType::kQ8_0: read_rows<ReadQ8_0>(src, src_row_bytes, dim, begin, end, scratch); break;
      default: read_rows<ReadQ4_0>(src, src_row_bytes, dim, begin, end, scratch); break;  // kCacheTypes has no more
    }
    return {scratch, padded};
  }

  KvFormat format_;
  const std::byte* base_;
  int64_t page_bytes_;
  int64_t k_row_;
  int64_t v_row_;
  int64_t k_offset_;
  int64_t v_offset_;
};

}  // namespace tessera::TESSERA_ISA

#pragma once
// Keys and values of one KV page, read as float32 by attention's kernel body (see vec.h). The values are exactly those
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

/// Sixteen values of a row from element i, a multiple of 16; only the first n of the sixteen exist.
struct ReadF32 {
  static F32x16 at(const std::byte* row, int64_t i, int64_t n) {
    const float* x = reinterpret_cast<const float*>(row) + i;
    return n >= 16 ? load(x) : load_n(x, n);
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

/// Rows of one head in a page or in scratch, one per place; whole vectors of a known type.
template <class Read>
struct TypedRows {
  const std::byte* data;
  int64_t bytes_per_row;
  /// Values i .. i + 16 of the row at a place.
  [[nodiscard]] F32x16 load16(int64_t place, int64_t i) const { return Read::at(data + place * bytes_per_row, i, 16); }
};

/// The same with the type yet to be looked at: visit() calls f with the TypedRows.
struct BlockRows {
  DType dtype;
  const std::byte* data;
  int64_t bytes_per_row;

  /// REQUIRES: dtype is kF32.
  [[nodiscard]] const float* floats() const { return reinterpret_cast<const float*>(data); }

  template <class Function>
  void visit(Function f) const {
    switch (dtype) {
      case DType::kF32: return f(TypedRows<ReadF32>{data, bytes_per_row});
      case DType::kF16: return f(TypedRows<Read16Bit<load_f16>>{data, bytes_per_row});
      case DType::kBF16: return f(TypedRows<Read16Bit<load_bf16>>{data, bytes_per_row});
      case DType::kQ8_0: return f(TypedRows<ReadQ8_0>{data, bytes_per_row});
      default: return f(TypedRows<ReadQ4_0>{data, bytes_per_row});  // kCacheTypes has no more
    }
  }
};

/// Rows [begin, end) as float32 in dst [32, padded_dim(dim)].
template <class Read>
inline void convert_rows(const TypedRows<Read>& rows, int64_t dim, int64_t begin, int64_t end, float* dst) {
  const int64_t padded = padded_dim(dim);
  const int64_t whole = dim / 16 * 16;
  for (int64_t place = begin; place < end; ++place) {
    float* out = dst + place * padded;
    for (int64_t i = 0; i < whole; i += 16) {
      store(out + i, rows.load16(place, i));
    }
    if (whole < dim) {
      store(out + whole, Read::at(rows.data + place * rows.bytes_per_row, whole, dim - whole));
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

  /// Keys at places [begin, end) of a page: the page itself where its rows are whole vectors and are float32 or wanted
  /// once; else converted in scratch.
  [[nodiscard]] BlockRows keys(int64_t page, int64_t begin, int64_t end, bool once, float* scratch) const {
    const BlockRows rows = {format_.k_type, base_ + page * page_bytes_ + k_offset_, k_row_};
    return direct_or_converted(rows, format_.k_dim, begin, end, once, scratch);
  }
  [[nodiscard]] BlockRows values(int64_t page, int64_t begin, int64_t end, bool once, float* scratch) const {
    const BlockRows rows = {format_.v_type, base_ + page * page_bytes_ + v_offset_, v_row_};
    return direct_or_converted(rows, format_.v_dim, begin, end, once, scratch);
  }

 private:
  static BlockRows direct_or_converted(const BlockRows& rows, int64_t dim, int64_t begin, int64_t end, bool once,
                                       float* scratch) {
    if (padded_dim(dim) == dim && (once || rows.dtype == DType::kF32)) {
      return rows;
    }
    rows.visit([&](const auto& typed) { convert_rows(typed, dim, begin, end, scratch); });
    const int64_t bytes_per_row = padded_dim(dim) * static_cast<int64_t>(sizeof(float));
    return {DType::kF32, reinterpret_cast<const std::byte*>(scratch), bytes_per_row};
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

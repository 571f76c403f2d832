#pragma once
// What a product needs: a random weight, packed, and activations. Shared by the programs of bench/ that time products.

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "ceilings.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/quantize.h"
#include "tensor/quants.h"

namespace tessera::bench {

struct Kernels {
  const KernelTable* table;
  KernelFn matmul;
  KernelFn quantize;
};

/// A random weight and packed copies of columns [begin, end) of it.
class Weight {
 public:
  Weight(DType dtype, int64_t rows, int64_t columns)
      : dtype_(dtype), rows_(rows), columns_(columns), gguf_(static_cast<size_t>(rows) * row_bytes(dtype, columns)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> row(static_cast<size_t>(columns));
    for (float& x : row) {
      x = normal(random);
    }
    if (!can_quantize(dtype)) {
      fill_blocks(random);
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        std::rotate(row.begin(), row.begin() + 1, row.end());
        quantize_row(dtype, row.data(), gguf_.data() + r * row_bytes(dtype, columns), columns);
      }
    }
  }

  [[nodiscard]] uint64_t packed_bytes(const WeightLayout& layout, int64_t n_columns) const {
    return layout.packed_bytes(dtype_, rows_, n_columns);
  }
  /// Returns the seconds that packing took.
  double pack(const WeightLayout& layout, int64_t begin, int64_t end, std::byte* dst) const {
    std::vector<const std::byte*> rows;
    for (int64_t r = 0; r < rows_; ++r) {
      rows.push_back(gguf_.data() + r * row_bytes(dtype_, columns_) + row_bytes(dtype_, begin));
    }
    const double start = thread_seconds();
    layout.pack(dtype_, end - begin, rows, dst);
    return thread_seconds() - start;
  }
  [[nodiscard]] uint64_t gguf_bytes() const { return gguf_.size(); }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] int64_t columns() const { return columns_; }

 private:
  /// Random bytes, for formats that nothing here writes; an exponent of MXFP4 near 1, as denormals take their own time.
  void fill_blocks(std::mt19937& random) {
    const DTypeInfo& info = dtype_info(dtype_);
    for (size_t i = 0; i < gguf_.size(); ++i) {
      const bool exponent = dtype_ == DType::kMXFP4 && i % info.block_bytes == 0;
      gguf_[i] = static_cast<std::byte>(exponent ? 127 : random() & 255U);
    }
  }

  DType dtype_;
  int64_t rows_, columns_;
  std::vector<std::byte> gguf_;
};

/// Activations, quantised too, and room for results.
struct Input {
  Input(const Kernels& kernels, int64_t tokens, int64_t columns)
      : n_tokens(tokens),
        x(static_cast<size_t>(tokens * columns)),
        q8(static_cast<uint64_t>(tokens * q8_row_bytes(columns))) {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    std::generate(x.begin(), x.end(), [&] { return normal(random); });
    args = {x.data(), columns, q8.bytes, columns, {}, false};
    const QuantizeArgs quantize = {x.data(), columns, columns, q8.bytes, false};
    CpuLaunch launch;
    const LaunchSizes sizes = {static_cast<int32_t>(n_tokens), 0, 0};
    quantize_s = fastest(5, [&] { kernels.quantize(&launch, &quantize, sizes); });
  }
  int64_t n_tokens;
  std::vector<float> x;
  AlignedBytes q8;
  MatmulArgs args;
  double quantize_s;
};

inline void run(const Kernels& kernels, const MatmulArgs& args, int64_t n_tokens) {
  CpuLaunch launch;
  kernels.matmul(&launch, &args, {static_cast<int32_t>(n_tokens), 0, 0});
}

}  // namespace tessera::bench

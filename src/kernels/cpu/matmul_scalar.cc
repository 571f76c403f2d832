// The scalar product: each weight is decoded to float32 by the reference decoder and all products are added in double,
// so that its error is that of the final rounding. Works for every dtype; what the fast products are measured against.

#include <algorithm>

#include "device/cpu/cpu_launch.h"
#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/matmul_split.h"
#include "kernels/ops/matmul.h"
#include "tensor/quants.h"

namespace tessera {
namespace {

constexpr int64_t kChunk = 1024;  // columns decoded at once: a multiple of every block size
constexpr int64_t kTokens = 32;   // tokens that share a decoded chunk
constexpr int64_t kLanes = 8;     // independent sums, so that a compiler can keep several in a register

void add_products(const float* w, const float* x, int64_t n, double* lanes) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<double>(w[i + lane]) * static_cast<double>(x[i + lane]);
    }
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) {
    lanes[lane] += static_cast<double>(w[i]) * static_cast<double>(x[i]);
  }
}

/// y[t, r] for one weight row and n_tokens <= kTokens tokens.
void product_row(const MatmulPanel& panel, int64_t r, const float* x, int64_t x_stride, int64_t n_tokens, float* y) {
  const auto* row = static_cast<const std::byte*>(panel.weights) + r * row_bytes(panel.dtype, panel.columns);
  double lanes[kTokens][kLanes] = {};
  float w[kChunk];
  for (int64_t k = 0; k < panel.columns; k += kChunk) {
    const int64_t n = std::min(kChunk, panel.columns - k);
    dequantize_row(panel.dtype, row + row_bytes(panel.dtype, k), w, n);
    for (int64_t t = 0; t < n_tokens; ++t) {
      add_products(w, x + t * x_stride + k, n, lanes[t]);
    }
  }
  for (int64_t t = 0; t < n_tokens; ++t) {
    double sum = 0;
    for (const double lane : lanes[t]) {
      sum += lane;
    }
    y[t * panel.y_stride] = static_cast<float>(sum);
  }
}

}  // namespace

uint64_t raw_packed_bytes(DType dtype, int64_t rows, int64_t columns) {
  return static_cast<uint64_t>(rows) * row_bytes(dtype, columns);
}

void pack_raw(DType dtype, int64_t columns, std::span<const std::byte* const> rows, std::byte* dst) {
  const uint64_t bytes = row_bytes(dtype, columns);
  for (size_t r = 0; r < rows.size(); ++r) {
    std::copy_n(rows[r], bytes, dst + r * bytes);
  }
}

void matmul_scalar_part(const MatmulPanel& panel, const MatmulArgs& args, int64_t row_begin, int64_t row_end,
                        int64_t token_begin, int64_t token_end) {
  for (int64_t t = token_begin; t < token_end; t += kTokens) {
    const float* x = args.x + t * args.x_stride + panel.column_begin;
    for (int64_t r = row_begin; r < row_end; ++r) {
      product_row(panel, r, x, args.x_stride, std::min(kTokens, token_end - t), panel.y + t * panel.y_stride + r);
    }
  }
}

void matmul_scalar(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& cpu = *static_cast<const CpuLaunch*>(launch);
  const auto& args = *static_cast<const MatmulArgs*>(raw_args);
  const int64_t n_rows = args.per_output ? sizes.n_outputs : sizes.n_tokens;
  const auto cost = [](const MatmulPanel& panel) { return panel.columns; };
  visit_share(RowLine(args.panels, 1, cost), cpu.thread, cpu.n_threads,
              [&](const MatmulPanel& panel, int64_t begin, int64_t end) {
                matmul_scalar_part(panel, args, begin, end, 0, n_rows);
              });
}

}  // namespace tessera

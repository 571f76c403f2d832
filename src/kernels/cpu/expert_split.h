#pragma once
// How the threads of a team share the products of expert_matmul, and what follows a product.

#include <algorithm>
#include <cstdint>

#include "device/cpu/cpu_launch.h"
#include "kernels/cpu/matmul_split.h"
#include "kernels/ops/expert_matmul.h"
#include "kernels/ops/matmul.h"

namespace tessera {

/// Shares out whole groups of row_group weight rows over all experts that have rows, a thread's about
/// 1 / n_threads of the sum of cost(panel, tokens) > 0 over them: with a few tokens, too, all threads have work. For
/// each expert and panel of this thread calls product(panel as matmul's, row_begin, row_end, token_begin, token_end),
/// then applies scale and bias.
template <typename Cost, typename Product>
void share_expert_products(const ExpertMatmulArgs& args, int64_t row_group, const CpuLaunch& cpu, Cost cost,
                           Product product) {
  // Calls visit(expert, panel, stretch) for what lies on the line, and returns its length.
  const auto for_each = [&](auto visit) {
    int64_t start = 0;
    for (int64_t e = 0; e < args.n_experts; ++e) {
      const int64_t n_tokens = args.begins[e + 1] - args.begins[e];
      for (const ExpertPanel& panel : args.panels) {
        if (n_tokens > 0 && (args.table == nullptr || args.table[e] >= 0)) {
          const RowStretch stretch = {start, panel.rows, row_group, cost(panel, n_tokens)};
          visit(e, panel, stretch);
          start += stretch.length();
        }
      }
    }
    return start;
  };
  const int64_t total = for_each([](int64_t, const ExpertPanel&, const RowStretch&) {});
  const int64_t begin = total * cpu.thread / cpu.n_threads;
  const int64_t end = total * (cpu.thread + 1) / cpu.n_threads;
  for_each([&](int64_t e, const ExpertPanel& panel, const RowStretch& stretch) {
    const auto [row_begin, row_end] = stretch.rows_between(begin, end);
    if (row_begin >= row_end) {
      return;
    }
    const auto expert = static_cast<size_t>(e);
    const std::byte* slot = args.table == nullptr ? nullptr : args.slots + args.table[e] * args.slot_bytes;
    const void* weights = slot == nullptr ? panel.weights[expert] : slot + panel.weight_offset;
    const float* bias = slot != nullptr && panel.bias_offset >= 0
                            ? reinterpret_cast<const float*>(slot + panel.bias_offset)
                        : panel.bias.empty() ? nullptr
                                             : panel.bias[expert];
    product(MatmulPanel{panel.dtype, weights, panel.rows, panel.columns, 0, panel.y, panel.y_stride}, row_begin,
            row_end, int64_t{args.begins[e]}, int64_t{args.begins[e + 1]});
    for (int64_t t = args.begins[e]; t < args.begins[e + 1] && (panel.scale != nullptr || bias != nullptr); ++t) {
      float* y = panel.y + t * panel.y_stride;
      for (int64_t r = row_begin; r < row_end; ++r) {
        const float scaled = panel.scale == nullptr ? y[r] : y[r] * panel.scale[e];
        y[r] = bias == nullptr ? scaled : scaled + bias[r];
      }
    }
  });
}

}  // namespace tessera

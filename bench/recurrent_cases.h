#pragma once
// Cases of kernels_bench: the ops of layers with recurrent state and of gated attention, at the sizes of qwen35 models:
// 16 key heads of 128 with two value heads each, a convolution over four tokens; 16 query heads of 256. All tokens are
// one sequence's.

#include <cstring>
#include <fmt/format.h>

#include "kernel_case.h"
#include "kernels/ops/delta_gates.h"
#include "kernels/ops/delta_rule.h"
#include "kernels/ops/gate_rows.h"
#include "kernels/ops/gated_norm.h"
#include "kernels/ops/short_conv.h"
#include "kernels/ops/split_heads.h"

namespace tessera::bench {

inline constexpr RecFormat kRecFormat = {16, 2, 128, 128, 4, true};
inline constexpr int64_t kValueHeads = kRecFormat.n_key_heads * kRecFormat.n_rep;

inline int64_t rec_channels() {
  return kRecFormat.n_key_heads * rec_group_channels(kRecFormat);
}

/// The slot of one sequence, and its n tokens in a micro-batch, the first of which is at position 1.
struct RecSequence {
  explicit RecSequence(int64_t n)
      : slot(static_cast<uint64_t>(rec_slot_bytes(kRecFormat, kRecFormat.n_key_heads))),
        rows(static_cast<size_t>(n)),
        run{0, 0, static_cast<int32_t>(n), 1},
        panels({{slot.bytes, kRecFormat.n_key_heads, 0, 0}}) {
    std::memset(slot.bytes, 0, static_cast<size_t>(rec_slot_bytes(kRecFormat, kRecFormat.n_key_heads)));
    for (int32_t i = 0; i < n; ++i) {
      rows[static_cast<size_t>(i)] = i;
    }
  }
  [[nodiscard]] RecRows where() const { return {rows.data(), &run}; }

  AlignedBytes slot;
  std::vector<int32_t> rows;
  RecRun run;
  std::vector<RecPanel> panels;
};

inline std::vector<Case> short_conv_cases(KernelFn kernel, int64_t n) {
  const int64_t width = rec_channels();
  const auto sequence = std::make_shared<RecSequence>(n);
  const Rows x(n, width);
  const Rows y(n, width);
  const Rows weight(kRecFormat.n_taps, width, 0.3F);
  const ShortConvArgs args = {.x = x.data(),
                              .x_stride = width,
                              .y = y.data(),
                              .y_stride = width,
                              .weight = weight.data(),
                              .format = kRecFormat,
                              .panels = sequence->panels,
                              .rows = sequence->where()};
  const int64_t ring = rec_conv_bytes(kRecFormat, kRecFormat.n_key_heads);
  return {{.variant = "",
           .shape = fmt::format("{} taps of {}", kRecFormat.n_taps, width),
           .bytes = static_cast<double>(n * width * 8 + 2 * ring),
           .ops = 2.0 * static_cast<double>(n * width * kRecFormat.n_taps),
           .commands = {call(kernel, args, sequence, x, y, weight)}}};
}

inline std::vector<Case> delta_gates_cases(KernelFn kernel, int64_t n) {
  const auto sequence = std::make_shared<RecSequence>(n);
  const Rows alpha(n, kValueHeads);
  const Rows beta(n, kValueHeads);
  const Rows log_decay(n, kValueHeads);
  const Rows strength(n, kValueHeads);
  const Rows dt_bias(1, kValueHeads);
  const Rows a(1, kValueHeads, -1.0F);
  const DeltaGatesArgs args = {.alpha = alpha.data(),
                               .beta = beta.data(),
                               .log_decay = log_decay.data(),
                               .strength = strength.data(),
                               .stride = kValueHeads,
                               .dt_bias = dt_bias.data(),
                               .a = a.data(),
                               .format = kRecFormat,
                               .panels = sequence->panels};
  return {{.variant = "",
           .shape = fmt::format("{} heads", kValueHeads),
           .bytes = static_cast<double>(n * kValueHeads * 16),
           .commands = {call(kernel, args, sequence, alpha, beta, log_decay, strength, dt_bias, a)}}};
}

/// Operations are those of the definition, whichever form computes it: for each number of the state and token two
/// for S^T k', two for S^T q', one for the decay and two for the update.
inline std::vector<Case> delta_rule_cases(KernelFn kernel, int64_t n) {
  const int64_t width = rec_channels();
  const int64_t out_width = kValueHeads * kRecFormat.v_dim;
  const auto sequence = std::make_shared<RecSequence>(n);
  const Rows qkv(n, width);
  const Rows log_decay(n, kValueHeads, -0.05F);
  const Rows strength(n, kValueHeads, 0.5F);
  const Rows out(n, out_width);
  const DeltaRuleArgs args = {.qkv = qkv.data(),
                              .qkv_stride = width,
                              .log_decay = log_decay.data(),
                              .strength = strength.data(),
                              .gate_stride = kValueHeads,
                              .out = out.data(),
                              .out_stride = out_width,
                              .eps = 1e-6F,
                              .format = kRecFormat,
                              .panels = sequence->panels,
                              .rows = sequence->where()};
  const int64_t state_numbers = kValueHeads * kRecFormat.k_dim * kRecFormat.v_dim;
  return {{.variant = "",
           .shape = fmt::format("{} states of {}x{}", kValueHeads, kRecFormat.k_dim, kRecFormat.v_dim),
           .bytes = static_cast<double>(n * (width + out_width) * 4 + 2 * state_numbers * 4),
           .ops = 7.0 * static_cast<double>(n * state_numbers),
           .commands = {call(kernel, args, sequence, qkv, log_decay, strength, out)}}};
}

inline std::vector<Case> gated_norm_cases(KernelFn kernel, int64_t n) {
  const int64_t width = kRecFormat.v_dim;
  const int64_t stride = kValueHeads * width;
  const Rows x(n, stride);
  const Rows z(n, stride);
  const Rows weight(1, width);
  const Rows y(n, stride);
  const GatedNormArgs args = {.x = x.data(),
                              .x_stride = stride,
                              .z = z.data(),
                              .z_stride = stride,
                              .weight = weight.data(),
                              .y = y.data(),
                              .y_stride = stride,
                              .n_groups = kValueHeads,
                              .width = width,
                              .eps = 1e-6F};
  return {{.variant = "",
           .shape = fmt::format("{} groups of {}", kValueHeads, width),
           .bytes = static_cast<double>(n * stride * 12),
           .commands = {call(kernel, args, x, z, weight, y)}}};
}

/// The gate of the shared expert.
inline std::vector<Case> gate_rows_cases(KernelFn kernel, int64_t n) {
  const Rows x(n, kEmbd);
  const Rows gate(n, 1);
  const Rows y(n, kEmbd);
  const GateRowsArgs args = {.x = x.data(), .gate = gate.data(), .y = y.data(), .width = kEmbd};
  return {{.variant = "",
           .shape = fmt::format("{}", kEmbd),
           .bytes = static_cast<double>(n * kEmbd * 8),
           .commands = {call(kernel, args, x, gate, y)}}};
}

/// Queries and the gates of their heads' results.
inline std::vector<Case> split_heads_cases(KernelFn kernel, int64_t n) {
  constexpr int64_t kHeads = 16;
  constexpr int64_t kDim = 256;
  const Rows x(n, kHeads * 2 * kDim);
  const Rows first(n, kHeads * kDim);
  const Rows second(n, kHeads * kDim);
  const SplitHeadsArgs args = {
      .x = x.data(), .first = first.data(), .second = second.data(), .n_heads = kHeads, .head_dim = kDim};
  return {{.variant = "",
           .shape = fmt::format("{} heads of 2x{}", kHeads, kDim),
           .bytes = static_cast<double>(n * kHeads * kDim * 16),
           .commands = {call(kernel, args, x, first, second)}}};
}

}  // namespace tessera::bench

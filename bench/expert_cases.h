#pragma once
// Cases of kernels_bench: the ops of a mixture of experts, at the sizes of the models of 30 G weights of which 3 G are
// active (make_moe.py): 128 experts of 768 on a width of 2048, 8 of them chosen for each token, at random.

#include <cstring>
#include <fmt/format.h>

#include "kernel_case.h"
#include "kernels/kernel_table.h"
#include "kernels/ops/expert_gather.h"
#include "kernels/ops/expert_matmul.h"
#include "kernels/ops/expert_rows.h"
#include "kernels/ops/expert_sum.h"
#include "kernels/ops/expert_upload.h"
#include "kernels/ops/route.h"
#include "matmul_case.h"

namespace tessera::bench {

inline constexpr int64_t kExperts = 128;
inline constexpr int64_t kExpertsUsed = 8;
inline constexpr int64_t kExpertFfn = 768;
inline constexpr int64_t kExpertSlots = 16;  // that uploads fill at once

/// Experts drawn for n tokens by random logits, and the plan of a device that holds all of them.
struct Draw {
  Draw(const KernelTable& table, int64_t n)
      : logits(n, kExperts),
        routing_memory(static_cast<size_t>(n * 2 * kExpertsUsed)),
        plan_memory(static_cast<size_t>(expert_plan_bytes(kExperts, n * kExpertsUsed)) / sizeof(int32_t)),
        route({.logits = logits.data(),
               .n_experts = kExperts,
               .n_used = kExpertsUsed,
               .normalize = true,
               .routing = routing_memory.data()}),
        rows({.routing = routing_memory.data(),
              .n_used = kExpertsUsed,
              .n_experts = kExperts,
              .held = std::vector<uint8_t>(kExperts, 1),
              .plan = expert_plan(plan_memory.data(), kExperts, n * kExpertsUsed)}),
        n_rows(n * kExpertsUsed) {
    CpuLaunch launch;
    table.find(Op::kRoute)(&launch, &route, sizes_of(n));
    table.find(Op::kExpertRows)(&launch, &rows, sizes_of(n));
    for (int64_t e = 0; e < kExperts; ++e) {
      if (rows.plan.begins[e + 1] > rows.plan.begins[e]) {
        drawn.push_back(e);
      }
    }
  }
  Draw(const Draw&) = delete;
  Draw& operator=(const Draw&) = delete;
  [[nodiscard]] int64_t n_drawn() const { return static_cast<int64_t>(drawn.size()); }

  Rows logits;
  std::vector<int32_t> routing_memory;
  std::vector<int32_t> plan_memory;
  RouteArgs route;
  ExpertRowsArgs rows;
  int64_t n_rows;
  std::vector<int64_t> drawn;  // experts that have rows, ascending
};

/// Equal copies of one expert that fill the footprint, no more than there are experts. Successive commands of few
/// tokens read them in turn, as one layer after another does.
class ExpertCopies {
 public:
  ExpertCopies(uint64_t bytes, uint64_t footprint, int64_t n_tokens, int64_t n_drawn)
      : n_copies_(std::clamp<int64_t>(static_cast<int64_t>(footprint / bytes), 1, kExperts)),
        n_commands_(n_tokens > kDecodeTokens ? 1 : std::max<int64_t>(1, n_copies_ / n_drawn)),
        n_drawn_(n_drawn),
        bytes_(bytes),
        memory_(static_cast<uint64_t>(n_copies_) * bytes) {
    std::memset(memory_.bytes, 1, bytes);
  }
  [[nodiscard]] std::byte* first() const { return memory_.bytes; }
  /// Makes the others like the first.
  void repeat_first() {
    for (int64_t i = 1; i < n_copies_; ++i) {
      std::memcpy(memory_.bytes + static_cast<uint64_t>(i) * bytes_, memory_.bytes, bytes_);
    }
  }
  [[nodiscard]] int64_t n_commands() const { return n_commands_; }
  /// What a command reads for the rank-th of its drawn experts.
  [[nodiscard]] const std::byte* of(int64_t command, int64_t rank) const {
    return memory_.bytes + static_cast<uint64_t>((command * n_drawn_ + rank) % n_copies_) * bytes_;
  }

 private:
  int64_t n_copies_;
  int64_t n_commands_;
  int64_t n_drawn_;
  uint64_t bytes_;
  AlignedBytes memory_;
};

inline std::vector<Case> route_cases(const KernelTable& table, int64_t n) {
  const auto draw = std::make_shared<Draw>(table, n);
  const Rows selection_bias(1, kExperts);
  RouteArgs grouped = draw->route;
  grouped.gating = RouteGating::kSigmoid;
  grouped.selection_bias = selection_bias.data();
  grouped.n_groups = 8;
  grouped.n_groups_used = 4;
  const std::string shape = fmt::format("{} of {}", kExpertsUsed, kExperts);
  const auto bytes = static_cast<double>(n * (kExperts + 2 * kExpertsUsed) * 4);
  const KernelFn kernel = table.find(Op::kRoute);
  return {
      {.variant = "softmax", .shape = shape, .bytes = bytes, .commands = {call(kernel, draw->route, draw)}},
      {.variant = "sigmoid, 4 of 8 groups",
       .shape = shape,
       .bytes = bytes,
       .commands = {call(kernel, grouped, draw, selection_bias)}},
  };
}

inline std::vector<Case> expert_rows_cases(const KernelTable& table, int64_t n) {
  const auto draw = std::make_shared<Draw>(table, n);
  return {{.variant = "",
           .shape = fmt::format("{} of {}", kExpertsUsed, kExperts),
           .bytes = static_cast<double>(n * kExpertsUsed * 12),
           .commands = {call(table.find(Op::kExpertRows), draw->rows, draw)}}};
}

inline std::vector<Case> expert_gather_cases(const KernelTable& table, int64_t n) {
  std::vector<Case> cases;
  for (const bool quantized : {false, true}) {
    const auto draw = std::make_shared<Draw>(table, n);
    const int64_t row_bytes = quantized ? q8_row_bytes(kEmbd) : 4 * kEmbd;
    const auto x = std::make_shared<AlignedBytes>(static_cast<uint64_t>(n * row_bytes));
    const auto y = std::make_shared<AlignedBytes>(static_cast<uint64_t>(draw->n_rows * row_bytes));
    std::memset(x->bytes, 1, static_cast<size_t>(n * row_bytes));
    const ExpertGatherArgs args = {.x = x->bytes,
                                   .row_bytes = row_bytes,
                                   .n_rows = draw->rows.plan.begins + kExperts,
                                   .tokens = draw->rows.plan.tokens,
                                   .y = y->bytes};
    cases.push_back({.variant = quantized ? "quantised" : "float32",
                     .shape = fmt::format("{} rows of {}", draw->n_rows, kEmbd),
                     .bytes = static_cast<double>(draw->n_rows * row_bytes * 2),
                     .commands = {call(table.find(Op::kExpertGather), args, draw, x, y)}});
  }
  return cases;
}

/// The first step of a layer in q4_k: as many of the drawn experts as there are slots.
inline std::vector<Case> expert_upload_cases(const KernelTable& table, int64_t n, uint64_t footprint) {
  const auto draw = std::make_shared<Draw>(table, n);
  const WeightLayout& layout = *table.layout(DType::kQ4_K);
  const uint64_t gate_bytes = layout.packed_bytes(DType::kQ4_K, kExpertFfn, kEmbd);
  const uint64_t down_bytes = layout.packed_bytes(DType::kQ4_K, kEmbd, kExpertFfn);
  const uint64_t expert_bytes = round_up(2 * gate_bytes + down_bytes, 64);
  const int64_t n_brought = std::min(draw->n_drawn(), kExpertSlots);
  const auto copies = std::make_shared<ExpertCopies>(expert_bytes, footprint, n, n_brought);
  copies->repeat_first();
  const auto slots = std::make_shared<AlignedBytes>(kExpertSlots * expert_bytes);
  const auto slot_table = std::make_shared<std::vector<int32_t>>(kExperts);
  Case result = {.variant = "q4_k",
                 .shape = fmt::format("{} experts of {}x{}", n_brought, kExpertFfn, kEmbd),
                 .bytes = 2 * static_cast<double>(n_brought) * static_cast<double>(2 * gate_bytes + down_bytes),
                 .commands = {}};
  for (int64_t i = 0; i < copies->n_commands(); ++i) {
    ExpertUploadArgs args = {.begins = draw->rows.plan.begins,
                             .n_experts = kExperts,
                             .first_rank = 0,
                             .n_slots = kExpertSlots,
                             .parts = {},
                             .slots = slots->bytes,
                             .slot_bytes = static_cast<int64_t>(expert_bytes),
                             .table = slot_table->data()};
    uint64_t offset = 0;
    for (const uint64_t bytes : {gate_bytes, gate_bytes, down_bytes}) {
      ExpertPart part = {.sources = std::vector<const std::byte*>(kExperts),
                         .bytes = static_cast<int64_t>(bytes),
                         .offset = static_cast<int64_t>(offset)};
      for (int64_t rank = 0; rank < n_brought; ++rank) {
        part.sources[static_cast<size_t>(draw->drawn[static_cast<size_t>(rank)])] = copies->of(i, rank) + offset;
      }
      args.parts.push_back(std::move(part));
      offset += bytes;
    }
    result.commands.push_back(call(table.find(Op::kExpertUpload), args, draw, copies, slots, slot_table));
  }
  return {result};
}

/// n_panels products [rows, columns] of one weight format that share an input.
inline Case expert_matmul_case(const KernelTable& table, DType dtype, int64_t n, uint64_t footprint, int64_t n_panels,
                               int64_t rows, int64_t columns) {
  const auto draw = std::make_shared<Draw>(table, n);
  const WeightLayout& layout = *table.layout(dtype);
  const Weight weight(dtype, rows, columns);
  const uint64_t panel_bytes = round_up(weight.packed_bytes(layout, columns), 64);
  const uint64_t expert_bytes = static_cast<uint64_t>(n_panels) * panel_bytes;
  const auto copies = std::make_shared<ExpertCopies>(expert_bytes, footprint, n, draw->n_drawn());
  for (int64_t p = 0; p < n_panels; ++p) {
    weight.pack(layout, 0, columns, copies->first() + static_cast<uint64_t>(p) * panel_bytes);
  }
  copies->repeat_first();
  const Kernels kernels = {&table, table.find(Op::kExpertMatmul), table.find(Op::kQuantize)};
  const auto input = std::make_shared<Input>(kernels, draw->n_rows, columns);
  const Rows y(n_panels * draw->n_rows, rows);
  const int64_t activations = layout.quantized_input ? q8_row_bytes(columns) : 4 * columns;
  Case result = {.variant = std::string(dtype_name(dtype)),
                 .shape = fmt::format("{} experts, {} of {}x{}", draw->n_drawn(), n_panels, rows, columns),
                 .bytes = static_cast<double>(draw->n_drawn()) * static_cast<double>(expert_bytes) +
                          static_cast<double>(draw->n_rows * (activations + 4 * n_panels * rows)),
                 .ops = 2.0 * static_cast<double>(draw->n_rows * n_panels * rows * columns),
                 .int8 = layout.quantized_input,
                 .commands = {}};
  for (int64_t i = 0; i < copies->n_commands(); ++i) {
    ExpertMatmulArgs args = {.x = input->x.data(),
                             .q8 = input->q8.bytes,
                             .begins = draw->rows.plan.begins,
                             .n_experts = kExperts,
                             .panels = {}};
    for (int64_t p = 0; p < n_panels; ++p) {
      ExpertPanel panel = {.dtype = dtype,
                           .rows = rows,
                           .columns = columns,
                           .weights = std::vector<const void*>(kExperts),
                           .bias = {},
                           .y = y.data() + p * draw->n_rows * rows,
                           .y_stride = rows};
      for (size_t rank = 0; rank < draw->drawn.size(); ++rank) {
        panel.weights[static_cast<size_t>(draw->drawn[rank])] =
            copies->of(i, static_cast<int64_t>(rank)) + static_cast<uint64_t>(p) * panel_bytes;
      }
      args.panels.push_back(std::move(panel));
    }
    result.commands.push_back(call(kernels.matmul, args, draw, copies, input, y));
  }
  return result;
}

/// Gate and up of one weight format, then down.
inline std::vector<Case> expert_matmul_cases(const KernelTable& table, DType dtype, int64_t n, uint64_t footprint) {
  return {expert_matmul_case(table, dtype, n, footprint, 2, kExpertFfn, kEmbd),
          expert_matmul_case(table, dtype, n, footprint, 1, kEmbd, kExpertFfn)};
}

inline std::vector<Case> expert_sum_cases(const KernelTable& table, int64_t n) {
  const auto draw = std::make_shared<Draw>(table, n);
  const Rows x(draw->n_rows, kEmbd);
  const Rows y(n, kEmbd);
  const ExpertSumArgs args = {.x = x.data(),
                              .routing = draw->routing_memory.data(),
                              .rows = draw->rows.plan.rows,
                              .n_used = kExpertsUsed,
                              .width = kEmbd,
                              .pieces = {{0, kExperts, y.data()}}};
  return {{.variant = "",
           .shape = fmt::format("{} rows of {}", draw->n_rows, kEmbd),
           .bytes = static_cast<double>((draw->n_rows + n) * kEmbd * 4),
           .ops = 2.0 * static_cast<double>(draw->n_rows * kEmbd),
           .commands = {call(table.find(Op::kExpertSum), args, draw, x, y)}}};
}

}  // namespace tessera::bench

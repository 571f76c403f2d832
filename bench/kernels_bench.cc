// Every op the CPU registers: what it reads and writes, and computes, per second, and its share of the ceiling,
// measured in the same run, that it comes closest to. Sizes are those of a model of 1.1 G weights; of 30 G with 3 G
// active for the ops of experts (expert_cases.h), and of qwen35 models for those of recurrent layers
// (recurrent_cases.h).
//
//   kernels_bench [--isa portable|avx2|avxvnni|avx512|all] [--op NAME]... [--dtype NAME]... [--tokens N,...]
//                 [--threads N] [--footprint MIB] [--csv]
//
// Default: the best instruction set, one thread, 1 and 512 tokens. --dtype: weights of these types, and caches whose
// keys and values are both of them; without it all weights, and caches of one type. A product or upload with up to 8
// tokens reads copies of its weights that fill the footprint (default 64 MiB, about a small model), and the read rate
// is that of a buffer of the same size; give more than the last cache holds to measure memory. Other ops run on one set
// of operands, which lies in a cache as in a model: few tokens can exceed the memory's rate, and their time is what
// counts. Bytes are those the op's header states; a multiply-add counts two operations. Threads are a team as the
// engine's (device/cpu/cpu_team.h), and its barrier is part of the time. Fastest of several runs; one thread in its CPU
// time. Fails where nothing was measured.

#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "ceilings.h"
#include "expert_cases.h"
#include "kernel_case.h"
#include "kernels/kernel_table.h"
#include "kernels/ops/add.h"
#include "kernels/ops/affine.h"
#include "kernels/ops/append_kv.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/gather_rows.h"
#include "kernels/ops/glu.h"
#include "kernels/ops/reduce.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/rope_table.h"
#include "kernels/ops/scale.h"
#include "matmul_case.h"
#include "recurrent_cases.h"

namespace tessera::bench {
namespace {

constexpr int64_t kFfn = 5632;
constexpr int64_t kVocab = 32000;
constexpr int64_t kHeads = 32;
constexpr int64_t kKvHeads = 4;
constexpr int64_t kHeadDim = 64;

struct Options {
  std::vector<CpuIsa> isas = {cpu_isas().back()};
  std::set<std::string> ops;     // empty: all
  std::set<std::string> dtypes;  // empty: all
  std::vector<int64_t> tokens = {1, 512};
  int n_threads = 1;
  uint64_t footprint = uint64_t{64} << 20;
  bool csv = false;
};

std::string by_width(int64_t width) {
  return fmt::format("{}", width);
}

std::vector<Case> rms_norm_cases(KernelFn kernel, int64_t n) {
  std::vector<Case> cases;
  for (const bool quantized : {false, true}) {
    const Rows x(n, kEmbd);
    const Rows weight(1, kEmbd);
    const Rows y(n, kEmbd);
    const auto q8 = std::make_shared<AlignedBytes>(static_cast<uint64_t>(n * q8_row_bytes(kEmbd)));
    const RmsNormArgs args = {.x = x.data(),
                              .x_stride = kEmbd,
                              .weight = weight.data(),
                              .y = y.data(),
                              .y_stride = kEmbd,
                              .width = kEmbd,
                              .eps = 1e-5F,
                              .q8 = quantized ? q8->bytes : nullptr};
    const double bytes = static_cast<double>(n * kEmbd * 8 + kEmbd * 4 + (quantized ? n * q8_row_bytes(kEmbd) : 0));
    cases.push_back({.variant = quantized ? "with quantize" : "",
                     .shape = by_width(kEmbd),
                     .bytes = bytes,
                     .commands = {call(kernel, args, x, weight, y, q8)}});
  }
  return cases;
}

std::vector<Case> quantize_cases(KernelFn kernel, int64_t n) {
  std::vector<Case> cases;
  for (const int64_t width : {kEmbd, kFfn}) {
    const Rows x(n, width);
    const auto q8 = std::make_shared<AlignedBytes>(static_cast<uint64_t>(n * q8_row_bytes(width)));
    const QuantizeArgs args = {.x = x.data(), .x_stride = width, .columns = width, .q8 = q8->bytes};
    cases.push_back({.variant = "",
                     .shape = by_width(width),
                     .bytes = static_cast<double>(n * (width * 4 + q8_row_bytes(width))),
                     .commands = {call(kernel, args, x, q8)}});
  }
  return cases;
}

std::vector<Case> rope_table_cases(KernelFn kernel, int64_t n) {
  const Rows inv_freq(1, kHeadDim / 2);
  const Rows table(n, kHeadDim);
  const auto positions = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(n), 1000);
  const RopeTableArgs args = {
      .positions = positions->data(), .inv_freq = inv_freq.data(), .n_pairs = kHeadDim / 2, .table = table.data()};
  return {{.variant = "",
           .shape = by_width(kHeadDim),
           .bytes = static_cast<double>(n * kHeadDim * 4),
           .commands = {call(kernel, args, inv_freq, table, positions)}}};
}

std::vector<Case> rope_cases(KernelFn kernel, int64_t n) {
  std::vector<Case> cases;
  for (const bool neox : {false, true}) {
    const Rows q(n, kHeads * kHeadDim);
    const Rows k(n, kKvHeads * kHeadDim);
    const Rows table(n, kHeadDim);
    RopeArgs args = {.inputs = {}, .head_dim = kHeadDim, .n_pairs = kHeadDim / 2, .neox = neox, .table = table.data()};
    for (const auto& [rows, n_heads] : {std::pair(q, kHeads), std::pair(k, kKvHeads)}) {
      const int64_t stride = n_heads * kHeadDim;
      args.inputs.push_back({rows.data(), stride, rows.data(), stride, n_heads});
    }
    cases.push_back({.variant = neox ? "neox" : "norm",
                     .shape = fmt::format("{}+{} heads of {}", kHeads, kKvHeads, kHeadDim),
                     .bytes = static_cast<double>(n * (kHeads + kKvHeads) * kHeadDim * 8),
                     .commands = {call(kernel, args, q, k, table)}});
  }
  return cases;
}

/// The pages of one sequence.
struct Cache {
  Cache(DType k_type, DType v_type, int64_t n_positions, int64_t n_heads = kKvHeads, int64_t head_dim = kHeadDim)
      : format{k_type, v_type, head_dim, head_dim},
        n_kv_heads(n_heads),
        n_pages((n_positions + kPageTokens - 1) / kPageTokens),
        pages(static_cast<uint64_t>(n_pages * kv_page_bytes(format, n_heads))),
        table(static_cast<size_t>(n_pages)) {
    std::memset(pages.bytes, 0, static_cast<size_t>(n_pages * kv_page_bytes(format, n_heads)));
    for (size_t i = 0; i < table.size(); ++i) {
      table[i] = static_cast<int32_t>(i);
    }
  }
  [[nodiscard]] std::vector<KvPanel> panels() const { return {{pages.bytes, n_kv_heads, 0}}; }

  KvFormat format;
  int64_t n_kv_heads;
  int64_t n_pages;
  AlignedBytes pages;
  std::vector<int32_t> table;
};

std::string pair_name(DType k_type, DType v_type) {
  return fmt::format("{}/{}", dtype_name(k_type), dtype_name(v_type));
}

std::vector<Case> append_kv_cases(const KernelRow& row, int64_t n) {
  constexpr int64_t kWidth = kKvHeads * kHeadDim;
  const auto cache = std::make_shared<Cache>(row.a, row.b, n);
  const Rows k(n, kWidth);
  const Rows v(n, kWidth);
  const auto slots = std::make_shared<std::vector<int32_t>>();
  for (int32_t i = 0; i < n; ++i) {
    slots->push_back(i);
  }
  const AppendKvArgs args = {.k = k.data(),
                             .k_stride = kWidth,
                             .v = v.data(),
                             .v_stride = kWidth,
                             .slots = slots->data(),
                             .format = cache->format,
                             .panels = cache->panels()};
  const double written = static_cast<double>(n * kv_page_bytes(cache->format, kKvHeads)) / kPageTokens;
  return {{.variant = pair_name(row.a, row.b),
           .shape = fmt::format("{} heads of {}", kKvHeads, kHeadDim),
           .bytes = static_cast<double>(n * 2 * kWidth * 4) + written,
           .commands = {call(row.function, args, cache, k, v, slots)}}};
}

struct AttentionShape {
  int64_t n_kv_heads;
  int64_t n_rep;
  int64_t head_dim;
};

/// n tokens that see `first` positions before them.
Case attention_case(const KernelRow& row, const AttentionShape& shape, int64_t first, int64_t n) {
  const int64_t width = shape.n_kv_heads * shape.n_rep * shape.head_dim;
  const auto cache = std::make_shared<Cache>(row.a, row.b, first + n, shape.n_kv_heads, shape.head_dim);
  const Rows q(n, width);
  const Rows out(n, width);
  const auto positions = std::make_shared<std::vector<int32_t>>();
  for (int64_t i = 0; i < n; ++i) {
    positions->push_back(static_cast<int32_t>(first + i));
  }
  const auto seq_rows = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(n), 0);
  const AttentionArgs args = {.q = q.data(),
                              .q_stride = width,
                              .out = out.data(),
                              .out_stride = width,
                              .n_rep = shape.n_rep,
                              .format = cache->format,
                              .panels = cache->panels(),
                              .positions = positions->data(),
                              .seq_rows = seq_rows->data(),
                              .page_table = cache->table.data(),
                              .page_table_stride = cache->n_pages,
                              .scale = 1 / std::sqrt(static_cast<float>(shape.head_dim))};
  const double visible = static_cast<double>(n) * (static_cast<double>(first) + static_cast<double>(n + 1) / 2);
  const int64_t cache_bytes = cache->n_pages * kv_page_bytes(cache->format, shape.n_kv_heads);
  return {
      .variant = pair_name(row.a, row.b),
      .shape = fmt::format("{}x{} heads of {}, {} positions", shape.n_kv_heads, shape.n_rep, shape.head_dim, first + n),
      .bytes = static_cast<double>(cache_bytes + n * width * 8),
      .ops = 4.0 * static_cast<double>(width) * visible,
      .commands = {call(row.function, args, cache, q, out, positions, seq_rows)}};
}

/// One token at two depths; more are a prompt from its start. Other shapes of heads with equal types alone.
std::vector<Case> attention_cases(const KernelRow& row, int64_t n) {
  std::vector<Case> cases;
  for (const AttentionShape& shape :
       {AttentionShape{kKvHeads, kHeads / kKvHeads, kHeadDim}, AttentionShape{8, 4, 128}, AttentionShape{4, 2, 256}}) {
    if (shape.head_dim != kHeadDim && row.a != row.b) {
      continue;
    }
    if (n > 1) {
      cases.push_back(attention_case(row, shape, 0, n));
      continue;
    }
    for (const int64_t depth : {512, 4096}) {
      cases.push_back(attention_case(row, shape, depth - 1, n));
    }
  }
  return cases;
}

std::vector<Case> glu_cases(KernelFn kernel, int64_t n) {
  struct Variant {
    const char* name;
    Activation activation;
    bool quantized;
  };
  std::vector<Case> cases;
  for (const Variant& variant :
       {Variant{"silu", Activation::kSilu, false}, Variant{"silu, only quantized", Activation::kSilu, true},
        Variant{"gelu", Activation::kGeluTanh, false}}) {
    const Rows gate(n, kFfn);
    const Rows up(n, kFfn);
    const Rows y(n, kFfn);
    const auto q8 = std::make_shared<AlignedBytes>(static_cast<uint64_t>(n * q8_row_bytes(kFfn)));
    const GluArgs args = {.gate = gate.data(),
                          .gate_stride = kFfn,
                          .up = up.data(),
                          .up_stride = kFfn,
                          .y = variant.quantized ? nullptr : y.data(),
                          .y_stride = kFfn,
                          .width = kFfn,
                          .activation = variant.activation,
                          .q8 = variant.quantized ? q8->bytes : nullptr};
    cases.push_back({.variant = variant.name,
                     .shape = by_width(kFfn),
                     .bytes = static_cast<double>(n * (kFfn * 8 + (variant.quantized ? q8_row_bytes(kFfn) : kFfn * 4))),
                     .commands = {call(kernel, args, gate, up, y, q8)}});
  }
  return cases;
}

std::vector<Case> reduce_cases(KernelFn kernel, int64_t n) {
  std::vector<Case> cases;
  for (const int64_t n_leaves : {1, 2, 4}) {
    const Rows leaves(n_leaves * n, kEmbd);
    const Rows residual(n, kEmbd);
    const Rows y(n, kEmbd);
    ReduceArgs args = {.leaves = {},
                       .order = {},
                       .width = kEmbd,
                       .residual = residual.data(),
                       .residual_stride = kEmbd,
                       .y = y.data(),
                       .y_stride = kEmbd};
    for (int64_t i = 0; i < n_leaves; ++i) {
      args.leaves.push_back({leaves.data() + i * n * kEmbd, kEmbd});
      args.order.push_back(static_cast<int8_t>(i));
      if (i > 0) {
        args.order.push_back(kReduceAdd);
      }
    }
    cases.push_back({.variant = fmt::format("{} cuts and residual", n_leaves),
                     .shape = by_width(kEmbd),
                     .bytes = static_cast<double>(n * kEmbd * 4 * (n_leaves + 2)),
                     .commands = {call(kernel, args, leaves, residual, y)}});
  }
  return cases;
}

std::vector<Case> add_cases(KernelFn kernel, int64_t n) {
  const Rows a(n, kEmbd);
  const Rows b(n, kEmbd);
  const Rows y(n, kEmbd);
  const AddArgs args = {.a = a.data(),
                        .a_stride = kEmbd,
                        .b = b.data(),
                        .b_stride = kEmbd,
                        .y = y.data(),
                        .y_stride = kEmbd,
                        .width = kEmbd};
  return {{.variant = "",
           .shape = by_width(kEmbd),
           .bytes = static_cast<double>(n * kEmbd * 12),
           .commands = {call(kernel, args, a, b, y)}}};
}

std::vector<Case> scale_cases(KernelFn kernel, int64_t n) {
  std::vector<Case> cases;
  for (const bool capped : {false, true}) {
    const int64_t width = capped ? kVocab : kEmbd;  // of an embedding; of logits
    const Rows x(n, width);
    const Rows y(n, width);
    const ScaleArgs args = {.x = x.data(),
                            .x_stride = width,
                            .y = y.data(),
                            .y_stride = width,
                            .width = width,
                            .scale = 0.5F,
                            .softcap = capped ? 30.0F : 0.0F};
    cases.push_back({.variant = capped ? "with softcap" : "",
                     .shape = by_width(width),
                     .bytes = static_cast<double>(n * width * 8),
                     .commands = {call(kernel, args, x, y)}});
  }
  return cases;
}

std::vector<Case> affine_cases(KernelFn kernel, int64_t n) {
  const Rows x(n, kEmbd);
  const Rows bias(1, kEmbd);
  const AffineArgs args = {
      .x = x.data(), .x_stride = kEmbd, .y = x.data(), .y_stride = kEmbd, .width = kEmbd, .bias = bias.data()};
  return {{.variant = "bias",
           .shape = by_width(kEmbd),
           .bytes = static_cast<double>(n * kEmbd * 8),
           .commands = {call(kernel, args, x, bias)}}};
}

std::vector<Case> gather_rows_cases(KernelFn kernel, int64_t n) {
  const Rows x(n, kEmbd);
  const Rows y(n, kEmbd);
  const auto rows = std::make_shared<std::vector<int32_t>>();
  for (int64_t i = 0; i < n; ++i) {
    rows->push_back(static_cast<int32_t>(n - 1 - i));
  }
  const GatherRowsArgs args = {
      .x = x.data(), .x_stride = kEmbd, .rows = rows->data(), .y = y.data(), .y_stride = kEmbd, .width = kEmbd};
  return {{.variant = "",
           .shape = by_width(kEmbd),
           .bytes = static_cast<double>(n * kEmbd * 8),
           .commands = {call(kernel, args, x, y, rows)}}};
}

/// The gate's product for one weight format.
Case matmul_case(const Kernels& kernels, DType dtype, int64_t n, const Options& options) {
  const WeightLayout& layout = *kernels.table->layout(dtype);
  const Weight weight(dtype, kFfn, kEmbd);
  const uint64_t bytes = round_up(weight.packed_bytes(layout, kEmbd), 64);
  const uint64_t copies = n > kDecodeTokens ? 1 : std::max<uint64_t>(1, options.footprint / bytes);
  const auto packed = std::make_shared<AlignedBytes>(copies * bytes);
  weight.pack(layout, 0, kEmbd, packed->bytes);
  for (uint64_t i = 1; i < copies; ++i) {
    std::memcpy(packed->bytes + i * bytes, packed->bytes, bytes);
  }
  const auto input = std::make_shared<Input>(kernels, n, kEmbd);
  const Rows y(n, kFfn);
  const double activations = layout.quantized_input ? static_cast<double>(q8_row_bytes(kEmbd)) : 4.0 * kEmbd;
  Case result = {.variant = std::string(dtype_name(dtype)),
                 .shape = fmt::format("{}x{}", kFfn, kEmbd),
                 .bytes = static_cast<double>(bytes) + static_cast<double>(n) * (activations + 4.0 * kFfn),
                 .ops = 2.0 * static_cast<double>(kFfn * kEmbd * n),
                 .int8 = layout.quantized_input,
                 .commands = {}};
  for (uint64_t i = 0; i < copies; ++i) {
    MatmulArgs args = input->args;
    args.panels = {{dtype, packed->bytes + i * bytes, kFfn, kEmbd, 0, y.data(), kFfn}};
    result.commands.push_back(call(kernels.matmul, args, packed, input, y));
  }
  return result;
}

/// Times and prints the cases of one instruction set.
class Bench {
 public:
  Bench(const Options& options, CpuIsa isa)
      : options_(options),
        isa_(isa),
        table_(cpu_kernel_table(CpuKernelSet::kFast, isa).value()),
        ceilings_(measure_ceilings(isa, options.footprint, options.n_threads)),
        team_(start_team(options.n_threads)) {
    if (!options.csv) {
      fmt::print("{}, {} thread{}: reads {:.1f} GB/s from {} MiB; int8 {:.0f} Gop/s, float32 {:.0f} Gop/s\n",
                 cpu_isa_name(isa), options.n_threads, options.n_threads == 1 ? "" : "s", 1e-9 * ceilings_.read_per_s,
                 options.footprint >> 20, 1e-9 * ceilings_.int8_per_s, 1e-9 * ceilings_.f32_per_s);
    }
  }

  /// Returns how many cases there were.
  int run_all() {
    int n_cases = 0;
    for (const KernelRow& row : table_->rows()) {
      if (options_.ops.empty() || options_.ops.contains(op_name(row.op))) {
        for (const int64_t n : options_.tokens) {
          n_cases += run_row(row, n);
        }
      }
    }
    return n_cases;
  }

 private:
  int run_row(const KernelRow& row, int64_t n) {
    if (row.op == Op::kMatmul || row.op == Op::kExpertMatmul) {
      int n_cases = 0;
      for (const DTypeInfo& info : dtype_table()) {
        if (table_->layout(info.dtype) != nullptr && is_wanted(info.dtype)) {
          n_cases += time_all(row.op, n, product_cases(row, info.dtype, n));
        }
      }
      return n_cases;
    }
    const bool wanted = options_.dtypes.empty() ? row.a == row.b : is_wanted(row.a) && is_wanted(row.b);
    return wanted ? time_all(row.op, n, cases_of(row, n)) : 0;
  }

  [[nodiscard]] bool is_wanted(DType dtype) const {
    return options_.dtypes.empty() || options_.dtypes.contains(std::string(dtype_name(dtype)));
  }

  [[nodiscard]] std::vector<Case> product_cases(const KernelRow& row, DType dtype, int64_t n) const {
    if (row.op == Op::kExpertMatmul) {
      return expert_matmul_cases(*table_, dtype, n, options_.footprint);
    }
    return {matmul_case({table_, row.function, table_->find(Op::kQuantize)}, dtype, n, options_)};
  }

  [[nodiscard]] std::vector<Case> cases_of(const KernelRow& row, int64_t n) const {
    switch (row.op) {
      case Op::kRmsNorm: return rms_norm_cases(row.function, n);
      case Op::kQuantize: return quantize_cases(row.function, n);
      case Op::kRopeTable: return rope_table_cases(row.function, n);
      case Op::kRope: return rope_cases(row.function, n);
      case Op::kAppendKv: return append_kv_cases(row, n);
      case Op::kAttention: return attention_cases(row, n);
      case Op::kGlu: return glu_cases(row.function, n);
      case Op::kReduce: return reduce_cases(row.function, n);
      case Op::kAdd: return add_cases(row.function, n);
      case Op::kScale: return scale_cases(row.function, n);
      case Op::kAffine: return affine_cases(row.function, n);
      case Op::kGatherRows: return gather_rows_cases(row.function, n);
      case Op::kRoute: return route_cases(*table_, n);
      case Op::kExpertRows: return expert_rows_cases(*table_, n);
      case Op::kExpertGather: return expert_gather_cases(*table_, n);
      case Op::kExpertUpload: return expert_upload_cases(*table_, n, options_.footprint);
      case Op::kExpertSum: return expert_sum_cases(*table_, n);
      case Op::kGateRows: return gate_rows_cases(row.function, n);
      case Op::kSplitHeads: return split_heads_cases(row.function, n);
      case Op::kShortConv: return short_conv_cases(row.function, n);
      case Op::kDeltaGates: return delta_gates_cases(row.function, n);
      case Op::kDeltaRule: return delta_rule_cases(row.function, n);
      case Op::kGatedNorm: return gated_norm_cases(row.function, n);
      case Op::kMatmul:
      case Op::kExpertMatmul: break;  // by weight format: product_cases
    }
    return {};
  }

  int time_all(Op op, int64_t n, const std::vector<Case>& cases) {
    for (const Case& each : cases) {
      time(op, n, each);
    }
    return static_cast<int>(cases.size());
  }

  void time(Op op, int64_t n, const Case& each) {
    const double once = fastest(1, *team_, each.commands, sizes_of(n));
    const int n_runs = static_cast<int>(std::clamp(0.1 / once, 3.0, 200.0));  // a tenth of a second
    const double seconds =
        fastest(n_runs, *team_, each.commands, sizes_of(n)) / static_cast<double>(each.commands.size());
    const double bytes_per_s = each.bytes / seconds;
    const double ops_per_s = each.ops / seconds;
    const double of_read = bytes_per_s / ceilings_.read_per_s;
    const double of_ops = ops_per_s / (each.int8 ? ceilings_.int8_per_s : ceilings_.f32_per_s);
    const char* ceiling = of_read >= of_ops ? "read" : each.int8 ? "int8" : "float32";
    if (options_.csv) {
      fmt::print("{},{},{},\"{}\",\"{}\",{},{:.3f},{:.3f},{:.2f},{},{:.3f}\n", cpu_isa_name(isa_), options_.n_threads,
                 op_name(op), each.variant, each.shape, n, 1e6 * seconds, 1e-9 * bytes_per_s, 1e-9 * ops_per_s, ceiling,
                 std::max(of_read, of_ops));
    } else {
      fmt::print("{:13} {:22} {:32} {:4} tokens {:10.2f} us {:8.2f} GB/s {:8.1f} Gop/s {:5.0f} % of {}\n", op_name(op),
                 each.variant, each.shape, n, 1e6 * seconds, 1e-9 * bytes_per_s, 1e-9 * ops_per_s,
                 100 * std::max(of_read, of_ops), ceiling);
    }
    std::fflush(stdout);
  }

  const Options& options_;
  CpuIsa isa_;
  const KernelTable* table_;
  Ceilings ceilings_;
  std::shared_ptr<CpuTeam> team_;
};

bool is_op(const std::string& name) {
  const KernelTable* table = cpu_kernel_table(CpuKernelSet::kFast, CpuIsa::kPortable).value();
  return std::ranges::any_of(table->rows(), [&](const KernelRow& row) { return name == op_name(row.op); });
}

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--csv") {
      options.csv = true;
      continue;
    }
    if (++i == argc) {
      return std::nullopt;
    }
    const std::string value = argv[i];
    const int number = std::atoi(value.c_str());
    if (flag == "--isa" && value == "all") {
      options.isas = cpu_isas();
    } else if (const auto isa = isa_from_name(value); flag == "--isa" && isa) {
      options.isas = {*isa};
    } else if (flag == "--op" && is_op(value)) {
      options.ops.insert(value);
    } else if (flag == "--dtype" && dtype_from_name(value)) {
      options.dtypes.insert(value);
    } else if (flag == "--tokens") {
      options.tokens.clear();
      for (size_t begin = 0; begin < value.size();) {
        options.tokens.push_back(std::max(1, std::atoi(value.c_str() + begin)));
        begin = std::min(value.find(',', begin), value.size() - 1) + 1;
      }
    } else if (flag == "--threads" && number > 0) {
      options.n_threads = number;
    } else if (flag == "--footprint" && number > 0) {
      options.footprint = static_cast<uint64_t>(number) << 20;
    } else {
      fmt::print(stderr, "{} cannot be {}\n", flag, value);
      return std::nullopt;
    }
  }
  return options;
}

int run_benches(int argc, char** argv) {
  const std::optional<Options> options = parse(argc, argv);
  if (!options) {
    std::fputs(
        "usage: kernels_bench [--isa portable|avx2|avxvnni|avx512|all] [--op NAME]... [--dtype NAME]...\n"
        "                     [--tokens N,...] [--threads N] [--footprint MIB] [--csv]\n"
        "An instruction set must be one that this processor has, an op one that it registers.\n",
        stderr);
    return 2;
  }
  if (options->csv) {
    fmt::print("isa,threads,op,variant,shape,tokens,us,gb_per_s,gop_per_s,ceiling,share\n");
  }
  for (const CpuIsa isa : options->isas) {
    if (Bench(*options, isa).run_all() == 0) {
      std::fputs("none of these ops has a case of these types\n", stderr);
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  return tessera::bench::run_benches(argc, argv);
}

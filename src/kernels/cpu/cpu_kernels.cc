#include "kernels/cpu/cpu_kernels.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "kernels/cpu/rows.h"

namespace tessera {
namespace {

KernelTable make_table(CpuKernelSet set, CpuIsa isa) {
  std::vector<KernelRow> rows;
  for (auto* append :
       {append_rms_norm_rows,      append_quantize_rows,      append_matmul_rows,      append_rope_table_rows,
        append_rope_rows,          append_append_kv_rows,     append_attention_rows,   append_glu_rows,
        append_reduce_rows,        append_add_rows,           append_scale_rows,       append_affine_rows,
        append_gather_rows_rows,   append_route_rows,         append_expert_rows_rows, append_expert_gather_rows,
        append_expert_upload_rows, append_expert_matmul_rows, append_expert_sum_rows,  append_gate_rows_rows,
        append_split_heads_rows,   append_short_conv_rows,    append_delta_gates_rows, append_delta_rule_rows,
        append_gated_norm_rows}) {
    append(set, isa, rows);
  }
  std::vector<WeightLayout> layouts;
  append_layouts(set, isa, layouts);
  return {set == CpuKernelSet::kScalar ? "cpu-scalar" : "cpu-fast", std::move(rows), std::move(layouts)};
}

}  // namespace

std::vector<CpuIsa> cpu_isas() {
  std::vector<CpuIsa> isas = {CpuIsa::kPortable};
#if defined(__x86_64__)
  // __builtin_cpu_supports also asks whether the operating system saves the registers.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    isas.push_back(CpuIsa::kAvx2);
    if (__builtin_cpu_supports("avxvnni")) {
      isas.push_back(CpuIsa::kAvxVnni);
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni")) {
      isas.push_back(CpuIsa::kAvx512Vnni);
    }
  }
#endif
  return isas;
}

std::string_view cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable: return "portable";
    case CpuIsa::kAvx2: return "avx2";
    case CpuIsa::kAvxVnni: return "avxvnni";
    case CpuIsa::kAvx512Vnni: return "avx512";
  }
  return "unknown";
}

Result<const KernelTable*> cpu_kernel_table(CpuKernelSet set, CpuIsa isa) {
  const std::vector<CpuIsa> isas = cpu_isas();
  if (std::find(isas.begin(), isas.end(), isa) == isas.end()) {
    std::vector<std::string_view> names;
    for (const CpuIsa has : isas) {
      names.push_back(cpu_isa_name(has));
    }
    return Status(ErrorCode::kUnsupported, fmt::format("this processor cannot run the {} kernels; it can run: {}",
                                                       cpu_isa_name(isa), fmt::join(names, ", ")));
  }
  if (set == CpuKernelSet::kScalar) {
    static const KernelTable scalar = make_table(set, CpuIsa::kPortable);
    return &scalar;
  }
  static const KernelTable portable = make_table(set, CpuIsa::kPortable);
  if (isa == CpuIsa::kPortable) {
    return &portable;
  }
  if (isa == CpuIsa::kAvx2) {
    static const KernelTable avx2 = make_table(set, isa);
    return &avx2;
  }
  if (isa == CpuIsa::kAvxVnni) {
    static const KernelTable avxvnni = make_table(set, isa);
    return &avxvnni;
  }
  static const KernelTable avx512 = make_table(set, isa);
  return &avx512;
}

}  // namespace tessera

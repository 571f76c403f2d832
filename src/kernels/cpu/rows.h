#pragma once
// Where each CPU op adds its kernels to a table, and how an op names its twins per instruction set.
//
// One function per op file, called by cpu_kernels.cc only: it appends the op's rows for one set and instruction set.

#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/kernel_table.h"

namespace tessera {

void append_rms_norm_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_quantize_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_matmul_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_rope_table_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_rope_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_append_kv_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_attention_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_glu_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_reduce_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_add_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_scale_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_affine_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_gather_rows_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_route_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_expert_rows_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_expert_gather_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_expert_upload_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_expert_matmul_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_expert_sum_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_gate_rows_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_split_heads_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_short_conv_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_delta_gates_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_delta_rule_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);
void append_gated_norm_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows);

/// The weight layouts of matmul, in the same manner.
void append_layouts(CpuKernelSet set, CpuIsa isa, std::vector<WeightLayout>& layouts);

/// The type that KernelFn points to: `KernelBody add;` declares a kernel.
using KernelBody = void(void* backend, const void* args, const LaunchSizes& sizes);

/// The twin for an instruction set; AVX-VNNI has one of its own only where integers are multiplied (matmul.cc).
inline KernelFn pick_kernel(CpuIsa isa, KernelFn portable, KernelFn avx2, KernelFn avx512) {
  switch (isa) {
    case CpuIsa::kAvx512Vnni: return avx512;
    case CpuIsa::kAvxVnni:
    case CpuIsa::kAvx2: return avx2;
    case CpuIsa::kPortable: break;
  }
  return portable;
}

}  // namespace tessera

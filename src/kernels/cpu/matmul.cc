// The rows and weight layouts of the CPU's matmul.

#include "kernels/ops/matmul.h"

#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/rows.h"

namespace tessera {

void append_layouts(CpuKernelSet /*set*/, CpuIsa /*isa*/, std::vector<WeightLayout>& layouts) {
  for (const DTypeInfo& info : dtype_table()) {
    layouts.push_back({info.dtype, 1, false, raw_packed_bytes, pack_raw});
  }
}

void append_matmul_rows(CpuKernelSet /*set*/, CpuIsa /*isa*/, std::vector<KernelRow>& rows) {
  rows.push_back({Op::kMatmul, DType::kF32, DType::kF32, matmul_scalar});
}

}  // namespace tessera

// The rows and weight layouts of the CPU's matmul, and the portable twin of the fast product.

#include "kernels/cpu/matmul_body.h"
#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace avx2 {
KernelBody matmul;
}
namespace avxvnni {
KernelBody matmul;
}
namespace avx512 {
KernelBody matmul;
}

void append_layouts(CpuKernelSet set, CpuIsa /*isa*/, std::vector<WeightLayout>& layouts) {
  for (const DTypeInfo& info : dtype_table()) {
    if (set == CpuKernelSet::kFast && packed_format(info.dtype) != nullptr) {
      layouts.push_back({info.dtype, kGroupRows, true, packed_bytes, pack_groups});
    } else {
      layouts.push_back({info.dtype, 1, false, raw_packed_bytes, pack_raw});
    }
  }
}

void append_matmul_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows) {
  const KernelFn fast =
      isa == CpuIsa::kAvxVnni ? avxvnni::matmul : pick_kernel(isa, portable::matmul, avx2::matmul, avx512::matmul);
  rows.push_back({Op::kMatmul, DType::kF32, DType::kF32, set == CpuKernelSet::kScalar ? matmul_scalar : fast});
}

}  // namespace tessera

#include "kernels/cpu/quantize_body.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace avx2 {
KernelBody quantize;
}
namespace avx512 {
KernelBody quantize;
}

void append_quantize_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows) {
  if (set == CpuKernelSet::kFast) {  // products of the scalar set read float activations
    rows.push_back({Op::kQuantize, DType::kF32, DType::kF32,
                    pick_kernel(isa, portable::quantize, avx2::quantize, avx512::quantize)});
  }
}

}  // namespace tessera

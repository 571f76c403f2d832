#include "kernels/ops/affine.h"

#include "kernels/cpu/affine_body.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace avx2 {
KernelBody affine;
}
namespace avx512 {
KernelBody affine;
}

/// The portable body is its own reference: it rounds each operation as the op's header says.
void append_affine_rows(CpuKernelSet /*set*/, CpuIsa isa, std::vector<KernelRow>& rows) {
  rows.push_back(
      {Op::kAffine, DType::kF32, DType::kF32, pick_kernel(isa, portable::affine, avx2::affine, avx512::affine)});
}

}  // namespace tessera

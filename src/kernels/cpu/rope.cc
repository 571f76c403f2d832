#include "kernels/ops/rope.h"

#include "kernels/cpu/rope_body.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace avx2 {
KernelBody rope;
}
namespace avx512 {
KernelBody rope;
}

/// The portable body is its own reference: it rounds each operation as the op's header says.
void append_rope_rows(CpuKernelSet /*set*/, CpuIsa isa, std::vector<KernelRow>& rows) {
  rows.push_back({Op::kRope, DType::kF32, DType::kF32, pick_kernel(isa, portable::rope, avx2::rope, avx512::rope)});
}

}  // namespace tessera

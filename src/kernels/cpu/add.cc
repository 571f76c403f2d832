#include "kernels/ops/add.h"

#include "kernels/cpu/add_body.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace avx2 {
KernelBody add;
}
namespace avx512 {
KernelBody add;
}

/// The portable body is its own reference: it rounds each operation as the op's header says.
void append_add_rows(CpuKernelSet /*set*/, CpuIsa isa, std::vector<KernelRow>& rows) {
  rows.push_back({Op::kAdd, DType::kF32, DType::kF32, pick_kernel(isa, portable::add, avx2::add, avx512::add)});
}

}  // namespace tessera

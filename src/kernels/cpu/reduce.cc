#include "kernels/ops/reduce.h"

#include "kernels/cpu/reduce_body.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace avx2 {
KernelBody reduce;
}
namespace avx512 {
KernelBody reduce;
}

/// The portable body is its own reference: it rounds each operation as the op's header says.
void append_reduce_rows(CpuKernelSet /*set*/, CpuIsa isa, std::vector<KernelRow>& rows) {
  rows.push_back(
      {Op::kReduce, DType::kF32, DType::kF32, pick_kernel(isa, portable::reduce, avx2::reduce, avx512::reduce)});
}

}  // namespace tessera

#include "kernels/cpu/expert_sum_body.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace avx2 {
KernelBody expert_sum;
}
namespace avx512 {
KernelBody expert_sum;
}

/// The fast twins serve the scalar set too: the order of the sum is the op's, and nothing in it is approximate.
void append_expert_sum_rows(CpuKernelSet /*set*/, CpuIsa isa, std::vector<KernelRow>& rows) {
  rows.push_back({Op::kExpertSum, DType::kF32, DType::kF32,
                  pick_kernel(isa, portable::expert_sum, avx2::expert_sum, avx512::expert_sum)});
}

}  // namespace tessera

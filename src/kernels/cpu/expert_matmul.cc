#include "kernels/cpu/expert_matmul_body.h"
#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace avx2 {
KernelBody expert_matmul;
}
namespace avxvnni {
KernelBody expert_matmul;
}
namespace avx512 {
KernelBody expert_matmul;
}
namespace {

void expert_matmul_scalar(void* launch, const void* raw_args, const LaunchSizes& /*sizes*/) {
  const auto& args = *static_cast<const ExpertMatmulArgs*>(raw_args);
  MatmulArgs input;
  input.x = args.x;
  input.x_stride = args.panels.front().columns;
  const auto cost = [](const ExpertPanel& panel, int64_t n_tokens) { return n_tokens * panel.columns; };
  share_expert_products(
      args, 1, *static_cast<const CpuLaunch*>(launch), cost,
      [&](const MatmulPanel& panel, int64_t row_begin, int64_t row_end, int64_t token_begin, int64_t token_end) {
        matmul_scalar_part(panel, input, row_begin, row_end, token_begin, token_end);
      });
}

}  // namespace

void append_expert_matmul_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows) {
  const KernelFn fast = isa == CpuIsa::kAvxVnni
                            ? avxvnni::expert_matmul
                            : pick_kernel(isa, portable::expert_matmul, avx2::expert_matmul, avx512::expert_matmul);
  rows.push_back(
      {Op::kExpertMatmul, DType::kF32, DType::kF32, set == CpuKernelSet::kScalar ? expert_matmul_scalar : fast});
}

}  // namespace tessera

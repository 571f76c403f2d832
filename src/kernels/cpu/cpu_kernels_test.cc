// Which kernels the tables of instruction sets share: what tests of single ops may leave out.

#include "kernels/cpu/cpu_kernels.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "kernels/kernel_test_util.h"

namespace tessera {
namespace {

TEST(CpuKernels, AvxVnniDiffersFromAvx2InProductsOfQuantisedWeightsAlone) {
  const std::vector<CpuIsa> isas = cpu_isas();
  if (std::ranges::count(isas, CpuIsa::kAvxVnni) == 0) {
    GTEST_SKIP() << "this processor has no AVX-VNNI";
  }
  const KernelTable& avx2 = **cpu_kernel_table(CpuKernelSet::kFast, CpuIsa::kAvx2);
  const KernelTable& avxvnni = **cpu_kernel_table(CpuKernelSet::kFast, CpuIsa::kAvxVnni);
  ASSERT_EQ(avxvnni.rows().size(), avx2.rows().size());
  for (const KernelRow& row : avx2.rows()) {
    const bool is_product = row.op == Op::kMatmul || row.op == Op::kExpertMatmul;
    EXPECT_EQ(avxvnni.find(row.op, row.a, row.b) == row.function, !is_product) << op_name(row.op);
  }
}

}  // namespace
}  // namespace tessera

#include "kernels/ops/append_kv.h"

#include "kernels/cpu/append_kv_body.h"
#include "kernels/cpu/cache_types.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace avx2 {
KernelBody append_kv;
}
namespace avx512 {
KernelBody append_kv;
}

/// The portable body is its own reference: every type has one rounding.
void append_append_kv_rows(CpuKernelSet /*set*/, CpuIsa isa, std::vector<KernelRow>& rows) {
  for (const DType k : kCacheTypes) {
    for (const DType v : kCacheTypes) {
      rows.push_back({Op::kAppendKv, k, v, pick_kernel(isa, portable::append_kv, avx2::append_kv, avx512::append_kv)});
    }
  }
}

}  // namespace tessera

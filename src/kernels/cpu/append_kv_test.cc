#include "kernels/ops/append_kv.h"

#include <limits>

#include "kernels/cpu/cache_types.h"
#include "kernels/kernel_test_util.h"
#include "tensor/half.h"
#include "tensor/quants.h"

namespace tessera {
namespace {

class AppendKvTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(AppendKvTest);

/// One row in a cache type, by the scalar conversions.
std::vector<std::byte> converted(DType dtype, const float* x, int64_t n) {
  std::vector<std::byte> bytes(row_bytes(dtype, static_cast<uint64_t>(n)));
  quantize_row(dtype, x, bytes.data(), n);
  return bytes;
}

TEST_P(AppendKvTest, WritesEachRowToItsPlaceAndNothingElse) {
  TestRandom random(1);
  for (const DType k_type : kCacheTypes) {
    for (const DType v_type : kCacheTypes) {
      for (const auto& [k_dim, v_dim] : std::vector<std::pair<int64_t, int64_t>>{{32, 64}, {96, 32}, {8, 24}, {7, 5}}) {
        if (k_dim % dtype_info(k_type).block_elems != 0 || v_dim % dtype_info(v_type).block_elems != 0) {
          continue;
        }
        const KvFormat format = {k_type, v_type, k_dim, v_dim};
        const std::vector<int32_t> slots = {130, 0, 95, 96, 31, 32, 64};  // pages 4, 0, 2, 3, 0, 1, 2
        const auto n_tokens = static_cast<int>(slots.size());
        const int64_t n_heads[] = {2, 1};  // per panel
        const int64_t n_pages = 5;
        GuardedRows k(random, n_tokens, 3 * k_dim, 3 * k_dim + 1);
        GuardedRows v(random, n_tokens, 3 * v_dim, 3 * v_dim + 2);
        k.at(1, 0) = 7e4F;  // beyond f16
        k.at(1, 1) = 1e-6F;
        std::vector<GuardedBytes> expected;
        for (const int64_t heads : n_heads) {
          expected.emplace_back(n_pages * kv_page_bytes(format, heads));
        }
        for (int64_t t = 0; t < n_tokens; ++t) {
          for (int64_t head = 0; head < 3; ++head) {
            const size_t panel = head < 2 ? 0 : 1;
            const int64_t local = head < 2 ? head : head - 2;
            const int64_t page = slots[static_cast<size_t>(t)] / 32;
            const int64_t place = slots[static_cast<size_t>(t)] % 32;
            std::byte* base = expected[panel].data() + page * kv_page_bytes(format, n_heads[panel]);
            const std::vector<std::byte> k_bytes = converted(k_type, k.row(t) + head * k_dim, k_dim);
            const std::vector<std::byte> v_bytes = converted(v_type, v.row(t) + head * v_dim, v_dim);
            const auto at = static_cast<size_t>(local * 32 + place);
            std::memcpy(base + at * k_bytes.size(), k_bytes.data(), k_bytes.size());
            std::memcpy(base + kv_k_bytes(format, n_heads[panel]) + at * v_bytes.size(), v_bytes.data(),
                        v_bytes.size());
          }
        }
        for (const int n_threads : {1, 2, 3, 7}) {
          std::vector<GuardedBytes> pages;
          pages.emplace_back(expected[0].size());
          pages.emplace_back(expected[1].size());
          const AppendKvArgs args{k.data(),
                                  k.stride(),
                                  v.data(),
                                  v.stride(),
                                  slots.data(),
                                  format,
                                  {{pages[0].data(), 2, 0}, {pages[1].data(), 1, 2}}};
          run_kernel(kernel(Op::kAppendKv, k_type, v_type), args, {n_tokens, 0, 1}, n_threads);
          ASSERT_TRUE(pages == expected) << dtype_name(k_type) << "/" << dtype_name(v_type) << " dims " << k_dim << ","
                                         << v_dim << ", " << n_threads << " threads";
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera

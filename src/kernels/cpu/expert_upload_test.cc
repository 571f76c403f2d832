#include "kernels/ops/expert_upload.h"

#include "kernels/kernel_test_util.h"

namespace tessera {
namespace {

class ExpertUploadTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(ExpertUploadTest);

// Six experts, of which 1, 2, 4 and 5 are drawn, through two slots.
TEST_P(ExpertUploadTest, BringsDrawnExpertsRankByRank) {
  const std::vector<int32_t> begins = {0, 0, 3, 4, 4, 5, 9};
  const std::vector<int32_t> drawn = {1, 2, 4, 5};
  TestRandom random(1);
  for (const int64_t bytes : {1, 4096, 10000}) {
    std::vector<std::vector<float>> experts;
    ExpertUploadArgs args;
    args.begins = begins.data();
    args.n_experts = 6;
    args.n_slots = 2;
    args.slot_bytes = bytes + 64 + 7;
    args.parts = {{{}, bytes, 64}, {{}, 5, 3}};
    for (int32_t e = 0; e < 6; ++e) {
      experts.push_back(random.normals(bytes + 1));
      const bool may_read = e != 0 && e != 3;
      for (ExpertPart& part : args.parts) {
        part.sources.push_back(may_read ? reinterpret_cast<const std::byte*>(experts.back().data()) : nullptr);
      }
    }
    for (const int64_t first_rank : {0, 2, 4}) {
      for (const int n_threads : {1, 2, 3, 7}) {
        GuardedBytes slots(2 * args.slot_bytes);
        GuardedBytes expected(2 * args.slot_bytes);
        std::vector<int32_t> table(6, 99);
        std::vector<int32_t> expected_table(6, -1);
        for (int64_t slot = 0; slot < 2 && first_rank + slot < 4; ++slot) {
          const int32_t e = drawn[static_cast<size_t>(first_rank + slot)];
          expected_table[static_cast<size_t>(e)] = static_cast<int32_t>(slot);
          for (const ExpertPart& part : args.parts) {
            std::memcpy(expected.data() + slot * args.slot_bytes + part.offset, experts[static_cast<size_t>(e)].data(),
                        static_cast<size_t>(part.bytes));
          }
        }
        args.first_rank = first_rank;
        args.slots = slots.data();
        args.table = table.data();
        run_kernel(kernel(Op::kExpertUpload), args, {9, 0, 1}, n_threads);
        ASSERT_EQ(table, expected_table);
        ASSERT_EQ(slots, expected) << bytes << " bytes, " << n_threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace tessera

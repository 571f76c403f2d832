#include "tensor/cut_rule.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(CutUnit, IsTheFewestGroupsWhoseColumnsAreWholeBlocks) {
  EXPECT_EQ(cut_unit_groups({}), 1);
  const ColumnCut smollm[] = {{DType::kQ4_1, 192}};  // 3 query heads of 64: whole blocks of 32
  EXPECT_EQ(cut_unit_groups(smollm), 1);
  const ColumnCut wide[] = {{DType::kQ4_K, 640}};
  EXPECT_EQ(cut_unit_groups(wide), 2);
  const ColumnCut odd[] = {{DType::kQ4_K, 448}};
  EXPECT_EQ(cut_unit_groups(odd), 4);
  const ColumnCut several[] = {{DType::kQ8_0, 48}, {DType::kQ6_K, 128}};
  EXPECT_EQ(cut_unit_groups(several), 2);
  const ColumnCut floats[] = {{DType::kF32, 24}};  // activation blocks of 32 count as well
  EXPECT_EQ(cut_unit_groups(floats), 4);
}

TEST(AxisCuts, CoverEveryGroupOnceAtMultiplesOfTheUnit) {
  for (int64_t n_groups : {0, 1, 2, 3, 7, 8, 40, 1536, 2048}) {
    for (int64_t unit : {1, 2, 3, 32, 256}) {
      for (int n_cuts = 1; n_cuts <= kMaxCuts; ++n_cuts) {
        for (int layer = 0; layer < 9; ++layer) {
          const AxisCuts cuts = make_axis_cuts(n_groups, unit, n_cuts, layer);
          EXPECT_EQ(cuts.bounds[0], 0);
          int64_t least = n_groups;
          int64_t most = 0;
          for (int c = 0; c < n_cuts; ++c) {
            const IndexRange range = cuts.groups(c);
            EXPECT_LE(range.begin, range.end);
            EXPECT_TRUE(range.begin % unit == 0 || range.begin == n_groups);
            least = std::min(least, range.size());
            most = std::max(most, range.size());
          }
          EXPECT_EQ(cuts.bounds[static_cast<size_t>(n_cuts)], n_groups);
          EXPECT_LT(most - least, 2 * unit) << n_groups << " groups, unit " << unit << ", " << n_cuts << " cuts";
          EXPECT_EQ(cuts.largest(), most);
        }
      }
    }
  }
}

TEST(AxisCuts, EmptyOnesRotateWithTheLayer) {
  // Two KV heads over five cuts: over five layers every cut holds a head equally often.
  int held[5] = {};
  for (int layer = 0; layer < 5; ++layer) {
    const AxisCuts cuts = make_axis_cuts(2, 1, 5, layer);
    EXPECT_EQ(cuts.n_nonempty(), 2);
    for (int c = 0; c < 5; ++c) {
      held[c] += cuts.empty(c) ? 0 : 1;
    }
  }
  for (const int n : held) {
    EXPECT_EQ(n, 2);
  }
}

}  // namespace
}  // namespace tessera

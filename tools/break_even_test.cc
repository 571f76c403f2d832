#include "break_even.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

// A 70B model on two H200s: tensor reads a token in 0.141 ms more and generates one in 7.4 ms less.
TEST(BreakEven, IsWhereTheGainOfEachPhasePaysForTheSwitch) {
  const PhaseTimes layer = {0.470e-3, 22.5e-3};
  const PhaseTimes tensor = {0.611e-3, 15.1e-3};
  const BreakEven fast = break_even(layer, tensor, 0.05);
  EXPECT_NEAR(*fast.prompt_tokens, 354.6, 0.1);
  EXPECT_NEAR(*fast.generated_tokens, 6.76, 0.01);
  const BreakEven slow = break_even(layer, tensor, 2.2);
  EXPECT_NEAR(*slow.prompt_tokens, 15603, 1);
  EXPECT_NEAR(*slow.generated_tokens, 297.3, 0.1);
}

TEST(BreakEven, ThereIsNoneWhereOnePlacementWinsBothPhases) {
  const PhaseTimes slower = {2, 2};
  const PhaseTimes faster = {1, 1};
  EXPECT_FALSE(break_even(slower, faster, 1).prompt_tokens);
  EXPECT_TRUE(break_even(slower, faster, 1).generated_tokens);
  EXPECT_TRUE(break_even(faster, slower, 1).prompt_tokens);
  EXPECT_FALSE(break_even(faster, slower, 1).generated_tokens);
  EXPECT_FALSE(break_even(faster, faster, 1).prompt_tokens);
}

}  // namespace
}  // namespace tessera

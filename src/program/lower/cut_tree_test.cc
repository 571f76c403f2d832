#include "program/lower/cut_tree.h"

#include <gtest/gtest.h>
#include <random>

#include "kernels/ops/reduce.h"

namespace tessera {
namespace {

// Evaluates a postfix expression over strings, which shows its parentheses.
std::string evaluate(const std::vector<int8_t>& order, const std::vector<std::string>& leaves) {
  std::vector<std::string> stack;
  for (const int8_t entry : order) {
    if (entry != kReduceAdd) {
      stack.push_back(leaves[static_cast<size_t>(entry)]);
      continue;
    }
    const std::string upper = stack.back();
    stack.pop_back();
    stack.back() = "(" + stack.back() + "+" + upper + ")";
  }
  EXPECT_EQ(stack.size(), 1U);
  return stack.back();
}

std::string whole(int n_cuts, CutMask nonempty) {
  std::vector<CutRange> ranges;
  std::vector<std::string> names;
  for (int c = 0; c < n_cuts; ++c) {
    if ((nonempty >> c & 1U) != 0) {
      ranges.push_back({c, c + 1});
      names.push_back(std::to_string(c));
    }
  }
  return evaluate(tree_postfix({0, n_cuts}, nonempty, ranges), names);
}

TEST(CutTree, IsBalancedAndSkipsEmptyCuts) {
  EXPECT_EQ(whole(1, 1), "0");
  EXPECT_EQ(whole(4, 0xF), "((0+1)+(2+3))");
  EXPECT_EQ(whole(5, 0x1F), "(((0+1)+2)+(3+4))");
  EXPECT_EQ(whole(5, 0x12), "(1+4)");
  EXPECT_EQ(whole(8, 0xFF), "(((0+1)+(2+3))+((4+5)+(6+7)))");
}

// However cuts are spread over devices, adding each device's sub-tree roots gives the same expression.
TEST(CutTree, EveryDistributionAddsInTheSameOrder) {
  std::mt19937 random(11);
  for (int round = 0; round < 5000; ++round) {
    const int n_cuts = 1 + static_cast<int>(random() % 8);
    const CutMask all = (CutMask{1} << n_cuts) - 1;
    CutMask nonempty = static_cast<CutMask>(random()) & all;
    nonempty = nonempty == 0 ? 1 : nonempty;
    const auto n_devices = static_cast<unsigned>(1 + random() % 5);
    std::vector<CutMask> held(n_devices, 0);
    for (int c = 0; c < n_cuts; ++c) {
      held[random() % n_devices] |= nonempty & (CutMask{1} << c);
    }
    std::vector<CutRange> roots;
    std::vector<std::string> sums;
    for (const CutMask mask : held) {
      for (const CutRange range : held_subtrees(n_cuts, nonempty, mask)) {
        std::vector<CutRange> inside;
        std::vector<std::string> names;
        for (int c = range.lo; c < range.hi; ++c) {
          if ((nonempty >> c & 1U) != 0) {
            EXPECT_NE(mask >> c & 1U, 0U);
            inside.push_back({c, c + 1});
            names.push_back(std::to_string(c));
          }
        }
        roots.push_back(range);
        sums.push_back(evaluate(tree_postfix(range, nonempty, inside), names));
      }
    }
    EXPECT_EQ(evaluate(tree_postfix({0, n_cuts}, nonempty, roots), sums), whole(n_cuts, nonempty));
  }
}

}  // namespace
}  // namespace tessera

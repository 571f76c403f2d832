#include "runtime/reasoning_budget.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

ReasoningLimit limit(int64_t n_tokens, bool is_open = false) {
  return {.n_tokens = n_tokens, .begin = "<think>", .end = "</think>", .end_tokens = {7, 8}, .is_open = is_open};
}

// The tokens that come: of the text, or where one is forced "!".
std::string run(ReasoningBudget budget, const std::vector<std::string>& tokens) {
  std::string result;
  for (size_t i = 0; i < tokens.size();) {
    if (const auto id = budget.forced()) {
      result += "!" + std::to_string(*id);
      budget.accept(*id == 7 ? "</thi" : "nk>");
    } else {
      result += tokens[i];
      budget.accept(tokens[i++]);
    }
  }
  return result;
}

TEST(ReasoningBudget, ForcesTheEnd) {
  EXPECT_EQ(run(ReasoningBudget(limit(2)), {"<th", "ink>", "a", "b", "c", "d"}), "<think>ab!7!8cd");
  EXPECT_EQ(run(ReasoningBudget(limit(2, true)), {"a", "b", "c"}), "ab!7!8c");
  EXPECT_EQ(run(ReasoningBudget(limit(0, true)), {"a", "b"}), "!7!8ab");
  EXPECT_EQ(run(ReasoningBudget(limit(0)), {"\n", "<think>", "a"}), "\n<think>!7!8a");
}

TEST(ReasoningBudget, LeavesTheRestAlone) {
  EXPECT_EQ(run(ReasoningBudget(limit(5)), {"<think>", "a", "</th", "ink>", "b", "c", "d", "e", "f"}),
            "<think>a</think>bcdef");
  EXPECT_EQ(run(ReasoningBudget(limit(1)), {"no", "<think>", "a", "b", "c"}), "no<think>abc");
  EXPECT_EQ(run(ReasoningBudget(limit(-1, true)), {"a", "b", "c"}), "abc");
  EXPECT_EQ(
      run(ReasoningBudget({.n_tokens = 1, .begin = "<", .end = ">", .end_tokens = {}, .is_open = true}), {"a", "b"}),
      "ab");
}

TEST(ReasoningBudget, CountsWhatComesAgain) {
  ReasoningLimit again = limit(3);
  again.repeats = true;
  EXPECT_EQ(run(ReasoningBudget(again), {"x", "<think>", "a", "</think>", "y", "<think>", "b", "c"}),
            "x<think>a</think>y<think>b!7!8c");
}

}  // namespace
}  // namespace tessera

#include "tokenizer/merge.h"

#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <random>

namespace tessera {
namespace {

std::vector<Symbol> symbols_of(const std::vector<int32_t>& ids) {
  std::vector<Symbol> symbols;
  for (const int32_t id : ids) {
    symbols.push_back({id, symbols.size(), 1});
  }
  return symbols;
}

bool equal(const std::vector<Symbol>& a, const std::vector<Symbol>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Symbol& x, const Symbol& y) {
    return x.id == y.id && x.begin == y.begin && x.size == y.size;
  });
}

TEST(Merge, ScanAndQueueAgree) {
  const unsigned seed = 3;
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  size_t n_merged = 0;
  for (int round = 0; round < 2000; ++round) {
    // Few priorities, so that the leftmost of equals is often what decides.
    std::map<std::pair<int32_t, int32_t>, Merge<int>> rules;
    for (int i = 0; i < 40; ++i) {
      rules[{static_cast<int32_t>(random() % 12), static_cast<int32_t>(random() % 12)}] = {
          static_cast<int>(random() % 8), static_cast<int32_t>(random() % 12)};
    }
    const auto lookup = [&rules](const Symbol& left, const Symbol& right) {
      const auto rule = rules.find({left.id, right.id});
      return rule == rules.end() ? Merge<int>{} : rule->second;
    };
    std::vector<int32_t> ids(1 + random() % merge_internal::kMaxScanned);
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(random() % 4);
    }
    auto scanned = symbols_of(ids);
    auto queued = symbols_of(ids);
    merge_internal::merge_by_scan<int>(scanned, lookup);
    merge_internal::merge_by_queue<int>(queued, lookup);
    ASSERT_TRUE(equal(scanned, queued)) << "round " << round;
    n_merged += ids.size() - scanned.size();
  }
  EXPECT_GT(n_merged, 10'000U);
}

TEST(Merge, LowestFirstThenLeftmost) {
  const auto lookup = [](const Symbol& left, const Symbol& right) -> Merge<int> {
    if (left.id == 1 && right.id == 1) {
      return {5, 2};
    }
    return left.id == 1 && right.id == 3 ? Merge<int>{1, 4} : Merge<int>{};
  };
  auto symbols = symbols_of({1, 1, 1, 3});
  merge_symbols<int>(symbols, lookup);
  ASSERT_EQ(symbols.size(), 2U);
  EXPECT_EQ(symbols[0].id, 2);
  EXPECT_EQ(symbols[1].id, 4);
}

TEST(Merge, NothingToDo) {
  const auto never = [](const Symbol&, const Symbol&) { return Merge<int>{}; };
  std::vector<Symbol> none;
  merge_symbols<int>(none, never);
  EXPECT_TRUE(none.empty());
  auto one = symbols_of({7});
  merge_symbols<int>(one, never);
  EXPECT_EQ(one.size(), 1U);
  auto many = symbols_of(std::vector<int32_t>(100, 7));
  merge_symbols<int>(many, never);
  EXPECT_EQ(many.size(), 100U);
}

}  // namespace
}  // namespace tessera

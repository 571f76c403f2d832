#include "runtime/fit_search.h"

#include <gtest/gtest.h>
#include <random>
#include <set>

namespace tessera {
namespace {

ItemCosts random_costs(std::mt19937& random, size_t n_devices, size_t n_items) {
  ItemCosts costs;
  for (size_t d = 0; d < n_devices; ++d) {
    std::vector<uint64_t> sums = {0};
    for (size_t i = 0; i < n_items; ++i) {
      sums.push_back(sums.back() + random() % 10);
    }
    costs.sums.push_back(sums);
    costs.base.push_back(random() % 3 == 0 ? random() % 6 : 0);
    costs.start.push_back(random() % 3);
    costs.tail.push_back(random() % 8);
    costs.closed.push_back(random() % 8 == 0);
  }
  return costs;
}

bool allowed(const ItemCosts& costs, const std::vector<uint64_t>& room, const std::vector<int>& counts) {
  size_t begin = 0;
  for (size_t d = 0; d < counts.size(); ++d) {
    const size_t end = begin + static_cast<size_t>(counts[d]);
    if ((counts[d] > 0 && costs.closed[d]) || costs.of(d, begin, end) > room[d]) {
      return false;
    }
    begin = end;
  }
  return true;
}

void all_divisions(size_t n_devices, int n_left, std::vector<int>& counts, std::vector<std::vector<int>>& all) {
  if (counts.size() + 1 == n_devices) {
    counts.push_back(n_left);
    all.push_back(counts);
    counts.pop_back();
    return;
  }
  for (int n = 0; n <= n_left; ++n) {
    counts.push_back(n);
    all_divisions(n_devices, n_left - n, counts, all);
    counts.pop_back();
  }
}

TEST(FindDivision, OffersEveryOneThatHasRoomOnce) {
  std::mt19937 random(5);
  int n_found = 0;
  for (int i = 0; i < 3000; ++i) {
    const size_t n_devices = 1 + random() % 4;
    const size_t n_items = random() % 7;
    const ItemCosts costs = random_costs(random, n_devices, n_items);
    std::vector<uint64_t> room;
    for (size_t d = 0; d < n_devices; ++d) {
      room.push_back(random() % 40);
    }
    std::vector<int> counts;
    std::vector<std::vector<int>> all;
    all_divisions(n_devices, static_cast<int>(n_items), counts, all);
    std::set<std::vector<int>> wanted;
    for (const std::vector<int>& each : all) {
      if (allowed(costs, room, each)) {
        wanted.insert(each);
      }
    }
    std::vector<std::vector<int>> offered;
    EXPECT_FALSE(find_division(costs, room, [&](const std::vector<int>& each) {
      offered.push_back(each);
      return false;
    }));
    EXPECT_EQ(std::set<std::vector<int>>(offered.begin(), offered.end()), wanted) << "instance " << i;
    EXPECT_EQ(offered.size(), wanted.size()) << "instance " << i;
    n_found += wanted.empty() ? 0 : 1;
  }
  EXPECT_GT(n_found, 500);
}

TEST(FindDivision, TheNearestToTheRoomsProportionsComesFirst) {
  ItemCosts costs;
  costs.sums = {{0, 1, 2, 3, 4, 5, 6, 7, 8}, {0, 1, 2, 3, 4, 5, 6, 7, 8}};
  costs.base = {0, 0};
  costs.start = {0, 0};
  costs.tail = {0, 0};
  costs.closed = {false, false};
  std::vector<int> first;
  const auto take = [&](const std::vector<int>& counts) {
    first = counts;
    return true;
  };
  EXPECT_TRUE(find_division(costs, {30, 10}, take));
  EXPECT_EQ(first, (std::vector<int>{6, 2}));
  EXPECT_TRUE(find_division(costs, {10, 10}, take));
  EXPECT_EQ(first, (std::vector<int>{4, 4}));
  costs.closed = {false, true};
  EXPECT_TRUE(find_division(costs, {10, 10}, take));
  EXPECT_EQ(first, (std::vector<int>{8, 0}));
  EXPECT_FALSE(find_division(costs, {7, 10}, take));
}

}  // namespace
}  // namespace tessera

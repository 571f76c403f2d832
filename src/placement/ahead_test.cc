#include "placement/ahead.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "placement/planner.h"

namespace tessera {
namespace {

constexpr uint64_t kUnit = 64;
constexpr size_t kDevices = 3;

/// Things of a few sizes, in two maps.
struct Case {
  std::vector<uint64_t> sizes;  // by thing
  Layout current;
  Layout wanted;

  [[nodiscard]] auto bytes() const {
    return [this](size_t thing, int) { return sizes[thing]; };
  }
};

/// Lays things out in random order, with gaps of up to `most_gap` units.
void lay(std::mt19937& random, const std::vector<uint64_t>& sizes, uint32_t most_gap, Layout& layout) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  layout.offset.resize(sizes.size());
  layout.region_bytes.assign(kDevices, 0);
  for (const size_t t : order) {
    uint64_t& region = layout.region_bytes[static_cast<size_t>(layout.home[t])];
    region += kUnit * (random() % (most_gap + 1));
    layout.offset[t] = region;
    region += sizes[t];
  }
}

Case random_case(std::mt19937& random) {
  Case c;
  const size_t n = 4 + random() % 40;
  for (size_t t = 0; t < n; ++t) {
    c.sizes.push_back(kUnit * (random() % 4 == 0 ? 1 + random() % 9 : 4));
    c.current.home.push_back(static_cast<int32_t>(random() % kDevices));
    c.wanted.home.push_back(random() % 2 == 0 ? c.current.home[t] : static_cast<int32_t>(random() % kDevices));
  }
  lay(random, c.sizes, random() % 3 == 0 ? 1 : 0, c.current);
  lay(random, c.sizes, 0, c.wanted);
  return c;
}

Plan plan_of(const Case& c, const Layout& from, const Layout& to) {
  TransitionRequest request;
  request.pools.assign(kDevices, {kUnit, UINT64_MAX});
  request.staging_bytes = 4 * kUnit;
  request.piece_bytes = 2 * kUnit;
  for (size_t t = 0; t < c.sizes.size(); ++t) {
    request.extents.push_back({c.sizes[t], {from.home[t], from.offset[t]}, {to.home[t], to.offset[t]}});
  }
  auto plan = plan_transition(request);  // refuses maps that overlap or leave the grid
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? std::move(plan).value() : Plan();
}

/// That copies to free places are just the things none of whose moves waits for another or is staged. (A thing that
/// moves within its own place waits for itself.)
void expect_free_places(const Case& c, const Layout& from, const Layout& to) {
  std::vector<bool> waits(c.sizes.size(), false);
  std::vector<bool> moves(c.sizes.size(), false);
  for (const Move& move : plan_of(c, from, to).moves) {
    const auto t = static_cast<size_t>(move.extent);
    moves[t] = true;
    waits[t] = waits[t] || !move.after.empty() || move.from_staging || move.to_staging;
  }
  std::vector<size_t> wanted;
  for (size_t t = 0; t < c.sizes.size(); ++t) {
    if (moves[t] && !waits[t]) {
      wanted.push_back(t);
    }
  }
  EXPECT_EQ(to_free_places(to, from, c.bytes()), wanted);
}

TEST(Ahead, RandomMapsKeepTheirLimitsAndCloseTheirHoles) {
  std::mt19937 random(5);
  size_t n_free = 0;
  size_t n_spread = 0;
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(round);
    const Case c = random_case(random);
    std::vector<uint64_t> room;
    for (size_t d = 0; d < kDevices; ++d) {
      room.push_back(kUnit * (random() % 3 == 0 ? 0 : random() % 80));
    }
    const Layout spread = spread_offsets(c.wanted, c.current, c.bytes(), room);
    ASSERT_EQ(spread.home, c.wanted.home);
    for (size_t d = 0; d < kDevices; ++d) {
      ASSERT_LE(spread.region_bytes[d], std::max(c.wanted.region_bytes[d], c.current.region_bytes[d]) + room[d]);
      n_spread += spread.region_bytes[d] > c.wanted.region_bytes[d] ? 1 : 0;
    }
    expect_free_places(c, c.current, spread);
    n_free += to_free_places(spread, c.current, c.bytes()).size();

    const Layout closed = close_offsets(c.wanted, spread, c.bytes());
    ASSERT_EQ(closed.home, c.wanted.home);
    for (size_t d = 0; d < kDevices; ++d) {
      const uint64_t wanted = c.wanted.region_bytes[d];
      ASSERT_LE(closed.region_bytes[d], wanted + wanted / kWasteParts);
    }
    expect_free_places(c, spread, closed);
    if (HasFatalFailure() || HasNonfatalFailure()) {
      return;
    }
  }
  EXPECT_GT(n_free, 5000U);
  EXPECT_GT(n_spread, 1000U);
}

// Two devices exchange half of what they have. Without room nothing is free; with room for it all is, and again when
// the holes are closed; with room for a part, that part is.
TEST(Ahead, RoomDecidesHowMuchIsFree) {
  constexpr size_t kThings = 40;
  Case c;
  c.sizes.assign(kThings, 4 * kUnit);
  for (size_t t = 0; t < kThings; ++t) {
    c.current.home.push_back(t < kThings / 2 ? 0 : 1);
    c.wanted.home.push_back(static_cast<int32_t>(t % 2));
  }
  std::mt19937 random(6);
  lay(random, c.sizes, 0, c.current);
  lay(random, c.sizes, 0, c.wanted);
  const auto n_free = [&](const Layout& to, const Layout& from) { return to_free_places(to, from, c.bytes()).size(); };
  const Layout none = spread_offsets(c.wanted, c.current, c.bytes(), {0, 0, 0});
  EXPECT_EQ(none.offset, keep_offsets(c.wanted, c.current, c.bytes()).offset);
  EXPECT_EQ(n_free(none, c.current), 0U);
  const Layout part = spread_offsets(c.wanted, c.current, c.bytes(), {13 * kUnit, 9 * kUnit, 0});
  EXPECT_EQ(n_free(part, c.current), 3U + 2U);
  EXPECT_EQ(plan_of(c, c.current, part).peaks[0].staging, 0U) << "what begins in free places needs no staging";
  const Layout all = spread_offsets(c.wanted, c.current, c.bytes(), {40 * kUnit, 40 * kUnit, 0});
  EXPECT_EQ(n_free(all, c.current), kThings / 2);
  const Layout closed = close_offsets(c.wanted, all, c.bytes());
  EXPECT_EQ(n_free(closed, all), kThings / 2);
  EXPECT_EQ(closed.region_bytes, c.wanted.region_bytes);
}

}  // namespace
}  // namespace tessera

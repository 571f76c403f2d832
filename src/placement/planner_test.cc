#include "placement/planner.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <random>

namespace tessera {
namespace {

using testing::HasSubstr;
constexpr int32_t kNowhere = PoolPosition::kNowhere;

/// Memory of all devices, byte by byte, in which a plan is carried out. Byte i of extent e has a value of its own.
class Memory {
 public:
  Memory(const TransitionRequest& request, const Plan& plan) : request_(request) {
    for (const DevicePeak& peak : plan.peaks) {
      regions_.emplace_back(std::max(peak.region_before, peak.region_after), 0);
      staging_.emplace_back(peak.staging, 0);
    }
    for (size_t e = 0; e < request.extents.size(); ++e) {
      const Extent& x = request.extents[e];
      for (uint64_t i = 0; x.from.device != kNowhere && i < x.bytes; ++i) {
        regions_[static_cast<size_t>(x.from.device)][x.from.offset + i] = value(e, i);
      }
    }
  }

  void run(const Move& move) {
    for (uint64_t i = 0; i < move.bytes; ++i) {
      const int32_t from = move.from.device;
      at(move.to_staging, move.to, i) = from == kNowhere
                                            ? value(static_cast<size_t>(move.extent), move.extent_offset + i)
                                            : at(move.from_staging, move.from, i);
    }
  }
  void undo(const Move& move) {
    for (uint64_t i = 0; move.from.device != kNowhere && i < move.bytes; ++i) {
      at(move.from_staging, move.from, i) = at(move.to_staging, move.to, i);
    }
  }

  /// Extents whose bytes are not where the old (new) map has them; those that the other map drops do not count.
  [[nodiscard]] int wrong(bool before) {
    int n = 0;
    for (size_t e = 0; e < request_.extents.size(); ++e) {
      const Extent& x = request_.extents[e];
      const PoolPosition& place = before ? x.from : x.to;
      const bool counts = place.device != kNowhere && (!before || x.to.device != kNowhere);
      bool whole = true;
      for (uint64_t i = 0; counts && i < x.bytes; ++i) {
        whole = whole && at(false, place, i) == value(e, i);
      }
      n += whole ? 0 : 1;
    }
    return n;
  }

 private:
  static uint32_t value(size_t extent, uint64_t byte) { return static_cast<uint32_t>((extent + 1) * 65536 + byte); }
  uint32_t& at(bool staging, const PoolPosition& place, uint64_t i) {
    return (staging ? staging_ : regions_)[static_cast<size_t>(place.device)].at(place.offset + i);
  }
  const TransitionRequest& request_;
  std::vector<std::vector<uint32_t>> regions_;
  std::vector<std::vector<uint32_t>> staging_;
};

/// Places extents one after another on random devices in random order, with a gap now and then.
void place_randomly(std::mt19937& random, TransitionRequest& request, bool before, bool gaps) {
  std::vector<uint64_t> ends(request.pools.size(), 0);
  std::vector<size_t> order(request.extents.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  for (const size_t e : order) {
    const auto device = random() % ends.size();
    const uint64_t unit = request.pools[device].unit_bytes;
    Extent& x = request.extents[e];
    PoolPosition& place = before ? x.from : x.to;
    if (gaps && random() % 16 == 0) {
      place.device = kNowhere;
      continue;
    }
    if (!before && random() % 8 == 0 && x.from.device == static_cast<int32_t>(device) &&
        ends[device] <= x.from.offset) {
      ends[device] = x.from.offset;  // stays
    } else if (gaps && random() % 4 == 0) {
      ends[device] += unit * (random() % 4);
    }
    place = {static_cast<int32_t>(device), ends[device]};
    ends[device] += (x.bytes + unit - 1) / unit * unit;
  }
}

TransitionRequest random_request(std::mt19937& random) {
  TransitionRequest request;
  const size_t n_devices = 1 + random() % 3;
  for (size_t d = 0; d < n_devices; ++d) {
    request.pools.push_back({uint64_t{1} << random() % 3, 1 << 20});
  }
  request.piece_bytes = 1 + random() % 8;
  request.staging_bytes = std::max<uint64_t>(4, random() % 16);
  request.piece_bytes = std::max<uint64_t>(4, request.piece_bytes);
  const bool equal = random() % 2 == 0;  // equal sizes without gaps: mostly cycles
  const uint64_t size = 1 + random() % 20;
  request.extents.resize(1 + random() % 12);
  for (Extent& x : request.extents) {
    x.bytes = equal ? size : random() % 24;
  }
  place_randomly(random, request, true, !equal);
  place_randomly(random, request, false, !equal);
  return request;
}

/// Runs all moves, always one whose `after` are done, chosen at random.
void run_in_any_order(std::mt19937& random, const Plan& plan, Memory& memory) {
  std::vector<size_t> left(plan.moves.size());
  std::iota(left.begin(), left.end(), 0);
  std::vector<bool> done(plan.moves.size());
  while (!left.empty()) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < left.size(); ++i) {
      if (std::ranges::all_of(plan.moves[left[i]].after, [&](int32_t m) { return done[static_cast<size_t>(m)]; })) {
        ready.push_back(i);
      }
    }
    ASSERT_FALSE(ready.empty());
    const size_t pick = ready[random() % ready.size()];
    memory.run(plan.moves[left[pick]]);
    done[left[pick]] = true;
    left.erase(left.begin() + static_cast<ptrdiff_t>(pick));
  }
}

// Every byte arrives, in order and in any order that `after` allows; any prefix can be undone; staging keeps its limit.
TEST(Planner, RandomTransitions) {
  std::mt19937 random(1);
  int n_staged = 0;
  for (int i = 0; i < 100000; ++i) {
    const TransitionRequest request = random_request(random);
    const Result<Plan> plan = plan_transition(request);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    for (const Move& move : plan->moves) {
      n_staged += move.to_staging ? 1 : 0;
      ASSERT_LE(move.bytes, request.piece_bytes);
    }
    for (const DevicePeak& peak : plan->peaks) {
      ASSERT_LE(peak.staging, request.staging_bytes);
    }
    Memory all(request, *plan);
    for (const Move& move : plan->moves) {
      all.run(move);
    }
    ASSERT_EQ(all.wrong(false), 0) << "instance " << i;

    Memory part(request, *plan);
    const size_t n = plan->moves.empty() ? 0 : random() % (plan->moves.size() + 1);
    for (size_t m = 0; m < n; ++m) {
      part.run(plan->moves[m]);
    }
    for (size_t m = n; m-- > 0;) {
      part.undo(plan->moves[m]);
    }
    ASSERT_EQ(part.wrong(true), 0) << "instance " << i << " undone after " << n;

    if (i % 4 == 0) {
      Memory any(request, *plan);
      run_in_any_order(random, *plan, any);
      ASSERT_EQ(any.wrong(false), 0) << "instance " << i;
    }
  }
  EXPECT_GT(n_staged, 10000);  // cycles were met
}

/// Two devices that exchange n equal tiles in place.
TransitionRequest exchange(int n, uint64_t tile_bytes, uint64_t unit_bytes) {
  TransitionRequest request;
  request.pools = {{unit_bytes, uint64_t{1} << 40}, {unit_bytes, uint64_t{1} << 40}};
  for (int i = 0; i < n; ++i) {
    const PoolPosition a = {0, static_cast<uint64_t>(i) * tile_bytes};
    const PoolPosition b = {1, static_cast<uint64_t>(i) * tile_bytes};
    request.extents.push_back({tile_bytes, a, b});
    request.extents.push_back({tile_bytes, b, a});
  }
  return request;
}

TEST(Planner, WorkGrowsLinearly) {
  const auto steps = [](int n) {
    const auto plan = plan_transition(exchange(n, 1 << 20, 1 << 18));
    return static_cast<double>(plan->n_steps);
  };
  const double small = steps(500);
  const double large = steps(4000);
  EXPECT_NEAR(large / small, 8, 0.1);
}

TEST(Planner, ExchangeNeedsOnePieceOfStaging) {
  TransitionRequest request = exchange(10, 1 << 12, 1 << 8);
  request.staging_bytes = 1 << 8;
  const auto plan = plan_transition(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_LE(plan->peaks[0].staging, uint64_t{1} << 8);
  Memory memory(request, *plan);
  for (const Move& move : plan->moves) {
    memory.run(move);
  }
  EXPECT_EQ(memory.wrong(false), 0);
}

TEST(Planner, NeighboursTravelInLargePieces) {
  TransitionRequest request;
  request.pools = {{1 << 16, uint64_t{1} << 40}, {1 << 16, uint64_t{1} << 40}};
  request.extents = {{uint64_t{80} << 20, {0, 0}, {1, 0}}};
  const auto plan = plan_transition(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->moves.size(), 3U);  // 32, 32 and 16 MiB
  EXPECT_EQ(plan->peaks[0].staging + plan->peaks[1].staging, 0U);
}

TEST(Planner, WhatStaysIsNotTouched) {
  TransitionRequest request;
  request.pools = {{16, 1 << 20}};
  request.extents = {{100, {0, 0}, {0, 0}}, {100, {0, 112}, {0, 224}}};
  const auto plan = plan_transition(request);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->moves.size(), 1U);
  EXPECT_EQ(plan->moves[0].extent, 1);
  const auto links = link_use(*plan);
  ASSERT_EQ(links.size(), 1U);
  EXPECT_EQ(links[0].from, links[0].to);
  EXPECT_EQ(links[0].bytes, 100U);
}

TEST(Planner, DoesNotFitNamesEveryDevice) {
  TransitionRequest request = exchange(2, 1 << 20, 1 << 16);
  request.staging_bytes = 1 << 20;
  request.pools[0].budget_bytes = 1 << 20;
  request.pools[1].budget_bytes = 2 << 20;
  const auto plan = plan_transition(request);
  EXPECT_EQ(plan.status().code(), ErrorCode::kDoesNotFit);
  EXPECT_THAT(plan.status().message(), HasSubstr("device 0 needs"));
  EXPECT_THAT(plan.status().message(), HasSubstr("may have 1.0 MiB"));
}

TEST(Planner, RefusesMapsThatOverlap) {
  TransitionRequest request;
  request.pools = {{16, 1 << 20}};
  request.extents = {{32, {0, 0}, {0, 64}}, {32, {0, 16}, {0, 0}}};
  EXPECT_THAT(plan_transition(request).status().message(), HasSubstr("extents 0 and 1 overlap before"));
  request.extents = {{32, {0, 0}, {0, 64}}, {32, {0, 32}, {0, 80}}};
  EXPECT_THAT(plan_transition(request).status().message(), HasSubstr("extents 0 and 1 overlap after"));
  request.extents = {{32, {0, 8}, {0, 64}}};
  EXPECT_THAT(plan_transition(request).status().message(), HasSubstr("not on its grid"));
  request.extents = {{32, {1, 0}, {0, 64}}};
  EXPECT_THAT(plan_transition(request).status().message(), HasSubstr("device 1 of 1"));
  request.extents = {{UINT64_MAX, {0, 16}, {0, 64}}};
  EXPECT_EQ(plan_transition(request).status().code(), ErrorCode::kInvalidArgument);
}

TEST(Planner, PredictionWaitsForWhatEmptiesTheDestination) {
  TransitionRequest request;
  request.pools = {{16, 1 << 20}, {16, 1 << 20}};
  // Extent 1 takes the place that extent 0 leaves: two links, one after the other.
  request.extents = {{160, {0, 0}, {1, 0}}, {160, {0, 160}, {0, 0}}};
  const auto plan = plan_transition(request);
  ASSERT_TRUE(plan.ok());
  const double seconds = predict_seconds(*plan, [](int32_t, int32_t) { return LinkSpeed{160, 0.5}; });
  EXPECT_DOUBLE_EQ(seconds, 3);
}

// Ranges of one device: pool 2 lies on the device of pool 0.
TEST(Planner, PoolsOfADeviceShareItsStaging) {
  TransitionRequest request;
  request.pools = {{64, 1 << 20}, {64, 1 << 20}, {64, 1 << 20, 0}};
  request.staging_bytes = 64;
  request.piece_bytes = 64;
  // A cycle in pools 0 and 1, one in pools 2 and 1.
  request.extents = {{64, {0, 0}, {1, 0}}, {64, {1, 0}, {0, 0}}, {64, {1, 64}, {2, 0}}, {64, {2, 0}, {1, 64}}};
  const auto plan = plan_transition(request);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->peaks[2].staging, 0U);
  EXPECT_EQ(plan->peaks[0].staging + plan->peaks[1].staging, 128U);
  // What stages in pool 2 waits until pool 0 has left the place.
  request.extents = {{64, {1, 0}, {0, 0}}, {64, {0, 0}, {1, 0}}, {64, {1, 64}, {2, 0}}, {64, {2, 0}, {1, 64}}};
  const auto shared = plan_transition(request);
  ASSERT_TRUE(shared.ok());
  EXPECT_EQ(shared->peaks[0].staging, 64U);
  EXPECT_EQ(shared->peaks[1].staging, 0U);
  std::vector<size_t> in;
  std::vector<int32_t> out;
  for (size_t m = 0; m < shared->moves.size(); ++m) {
    if (shared->moves[m].to_staging) {
      in.push_back(m);
    }
    if (shared->moves[m].from_staging) {
      out.push_back(static_cast<int32_t>(m));
    }
  }
  ASSERT_EQ(in.size(), 2U);
  EXPECT_THAT(shared->moves[in[1]].after, testing::Contains(out[0]));
  for (const int32_t wrong : {2, 3}) {
    request.pools[2].staging_pool = wrong;
    EXPECT_EQ(plan_transition(request).status().code(), ErrorCode::kInvalidArgument) << wrong;
  }
  request.pools = {{64, 1 << 20}, {64, 1 << 20, 0}, {64, 1 << 20, 1}};
  EXPECT_EQ(plan_transition(request).status().code(), ErrorCode::kInvalidArgument) << "a pool that borrows itself";
}

}  // namespace
}  // namespace tessera

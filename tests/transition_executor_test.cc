#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <iostream>
#include <new>
#include <numeric>
#include <random>

#include "device/cpu/cpu_device.h"
#include "device/faulty/faulty_device.h"
#include "tests/support/allocations.h"
#include "transition/executor.h"

namespace tessera {
namespace {

constexpr uint64_t kUnit = 64;
constexpr int kDevices = 3;

/// CPU devices that fail as they are told to.
std::vector<std::unique_ptr<FaultyDevice>> make_devices(const std::vector<uint64_t>& budgets) {
  CpuDeviceOptions options;
  options.names = {"cpu:0", "cpu:1", "cpu:2"};
  options.n_threads = 1;
  options.budget_bytes = budgets;
  auto devices = make_cpu_devices(options);
  EXPECT_TRUE(devices.ok());
  std::vector<std::unique_ptr<FaultyDevice>> faulty;
  for (auto& device : *devices) {
    faulty.push_back(std::make_unique<FaultyDevice>(std::move(device), FaultPlan{}));
  }
  return faulty;
}

/// Places extents one after another on random devices in random order, with a gap now and then.
void place(std::mt19937& random, TransitionRequest& request, PoolPosition Extent::* place) {
  std::vector<uint64_t> ends(request.pools.size(), 0);
  std::vector<size_t> order(request.extents.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  for (const size_t e : order) {
    Extent& extent = request.extents[e];
    const size_t pool = random() % ends.size();
    ends[pool] += random() % 6 == 0 ? kUnit : 0;
    extent.*place = {static_cast<int32_t>(pool), ends[pool]};
    ends[pool] += (extent.bytes + kUnit - 1) / kUnit * kUnit;
  }
}

/// Two pools on every device, which share its staging; many extents of few sizes, as models have them.
TransitionRequest random_request(std::mt19937& random) {
  TransitionRequest request;
  for (int p = 0; p < 2 * kDevices; ++p) {
    request.pools.push_back({kUnit, UINT64_MAX, p < kDevices ? -1 : p - kDevices});
  }
  request.piece_bytes = kUnit * (1 + random() % 4);
  request.staging_bytes = request.piece_bytes * (1 + random() % 3);
  request.extents.resize(3 + random() % 7);
  for (Extent& extent : request.extents) {
    extent.bytes = random() % 3 == 0 ? 1 + random() % 500 : 4 * kUnit;
  }
  place(random, request, &Extent::from);
  if (random() % 2 == 0) {
    place(random, request, &Extent::to);
    return request;
  }
  // An exchange: those of one size change places, so that there are cycles.
  std::vector<Extent*> alike;
  for (Extent& extent : request.extents) {
    extent.to = extent.from;
    if (extent.bytes == 4 * kUnit) {
      alike.push_back(&extent);
    }
  }
  std::vector<Extent*> places = alike;
  std::ranges::shuffle(places, random);
  for (size_t i = 0; i < alike.size(); ++i) {
    alike[i]->to = places[i]->from;
  }
  return request;
}

/// A transition with its memory: just what the plan says, on devices whose budgets hold that and not a byte more.
struct World {
  TransitionRequest request;
  Plan plan;
  std::vector<std::unique_ptr<FaultyDevice>> devices;
  std::vector<std::unique_ptr<MemoryRange>> ranges;   // by pool
  std::vector<std::unique_ptr<MemoryRange>> staging;  // by device
  TransitionWork work;

  explicit World(TransitionRequest what) : request(std::move(what)) {
    auto planned = plan_transition(request);
    CHECK(planned.ok());
    plan = std::move(planned).value();
    std::vector<uint64_t> budgets(kDevices, 1);
    for (size_t p = 0; p < plan.peaks.size(); ++p) {
      budgets[p % kDevices] += plan.peaks[p].bytes();
    }
    devices = make_devices(budgets);
    for (size_t p = 0; p < plan.peaks.size(); ++p) {
      ranges.push_back(take(p % kDevices, plan.peaks[p].bytes() - plan.peaks[p].staging));
      work.pools.push_back({static_cast<int32_t>(p % kDevices), ranges.back()->base()});
    }
    for (size_t d = 0; d < kDevices; ++d) {
      staging.push_back(take(d, plan.peaks[d].staging));
      work.devices.push_back({devices[d].get(), staging.back()->base()});
      CHECK(devices[d]->used_bytes() + 1 == devices[d]->budget_bytes());
    }
    work.moves = plan.moves;
    fill();
  }

  /// Every extent to where it is before.
  void fill() {
    for (size_t e = 0; e < request.extents.size(); ++e) {
      for (uint64_t i = 0; i < request.extents[e].bytes; ++i) {
        at(request.extents[e].from)[i] = value(e, i);
      }
    }
  }

  std::unique_ptr<MemoryRange> take(size_t device, uint64_t bytes) {
    auto range = devices[device]->reserve(std::max<uint64_t>(bytes, 1), "test");
    CHECK(range.ok() && (*range)->resize(bytes).ok());
    return std::move(range).value();
  }
  std::byte* at(const PoolPosition& place) { return ranges[static_cast<size_t>(place.device)]->base() + place.offset; }
  static std::byte value(size_t extent, uint64_t i) { return static_cast<std::byte>(extent * 37 + i * 11 + i / 251); }

  /// Extents whose bytes are not where one of the maps has them.
  int n_wrong(PoolPosition Extent::* place) {
    int n = 0;
    for (size_t e = 0; e < request.extents.size(); ++e) {
      bool whole = true;
      for (uint64_t i = 0; i < request.extents[e].bytes; ++i) {
        whole = whole && at(request.extents[e].*place)[i] == value(e, i);
      }
      n += whole ? 0 : 1;
    }
    return n;
  }
  void arm(size_t device, const FaultPlan& faults) {
    for (size_t d = 0; d < devices.size(); ++d) {
      devices[d]->arm(d == device ? faults : FaultPlan{});
    }
  }
};

TEST(Executor, UndoesAFailureAtEveryStepOfRandomTransitions) {
  std::mt19937 random(7);
  int64_t n_failures = 0;
  int64_t n_staged = 0;
  for (int round = 0; round < 220; ++round) {
    World world(random_request(random));
    n_staged += std::ranges::count(world.work.moves, true, &Move::to_staging);
    for (size_t d = 0; d < kDevices; ++d) {
      bool reached = true;
      for (int64_t n = 0; reached; ++n) {
        SCOPED_TRACE(testing::Message() << "round " << round << ", device " << d << ", step " << n);
        world.arm(d, {.fail_at_command = n});
        const uint64_t used = world.devices[d]->used_bytes();
        const Status status = run_transition(world.work, {});
        reached = !status.ok();
        ASSERT_EQ(world.n_wrong(reached ? &Extent::from : &Extent::to), 0) << status.message();
        ASSERT_EQ(world.devices[d]->used_bytes(), used);
        if (reached) {
          ++n_failures;
          ASSERT_EQ(status.code(), ErrorCode::kInternal) << status.message();
        } else {
          ASSERT_EQ(world.devices[d]->counts().n_commands, n) << "no step was left out";
        }
      }
      world.fill();
    }
  }
  std::cout << "220 transitions: " << n_failures << " failures undone; " << n_staged << " moves to staging\n";
  EXPECT_GT(n_failures, 1500);
  EXPECT_GT(n_staged, 100);
}

/// Makes the moves of a plan that go to free places, and notes them as arrived. How many.
int64_t copy_ahead_what_can_be(World& world) {
  TransitionWork ahead{{}, {}, world.work.pools, world.work.devices};
  world.work.arrived.clear();
  for (const Move& move : world.work.moves) {
    const bool goes = move.after.empty() && !move.to_staging && !move.from_staging;
    world.work.arrived.push_back(goes);
    if (goes) {
      ahead.moves.push_back(move);
    }
  }
  EXPECT_TRUE(copy_ahead(ahead).ok());
  EXPECT_EQ(world.n_wrong(&Extent::from), 0) << "sources stay";
  return static_cast<int64_t>(ahead.moves.size());
}

// Moves that were made before count as done: the others go on from there, and where one of these fails, what they have
// overwritten comes back.
TEST(Executor, GoesOnFromWhatWasCopiedAheadAndUndoesThat) {
  std::mt19937 random(11);
  int64_t n_failures = 0;
  int64_t n_ahead = 0;
  for (int round = 0; round < 120; ++round) {
    World world(random_request(random));
    for (size_t d = 0; d < kDevices; ++d) {
      bool reached = true;
      for (int64_t n = 0; reached; ++n) {
        SCOPED_TRACE(testing::Message() << "round " << round << ", device " << d << ", step " << n);
        world.arm(d, {});
        n_ahead += copy_ahead_what_can_be(world);
        world.arm(d, {.fail_at_command = n});
        const Status status = run_transition(world.work, {});
        reached = !status.ok();
        ASSERT_EQ(world.n_wrong(reached ? &Extent::from : &Extent::to), 0) << status.message();
        n_failures += reached ? 1 : 0;
      }
      world.fill();
    }
  }
  std::cout << "120 transitions: " << n_ahead << " moves copied ahead, " << n_failures << " failures undone\n";
  EXPECT_GT(n_failures, 300);
  EXPECT_GT(n_ahead, 1000);
}

/// run_transition() on a thread without memory: see fail_allocations().
Status run_without_memory(const World& world, int64_t n_good, int64_t n_failures) {
  Status status(ErrorCode::kOutOfMemory, "");
  fail_allocations(n_good, n_failures);
  try {
    status = run_transition(world.work, {});
  } catch (const std::bad_alloc&) {  // before the first move, or when all was undone
  }
  return status;
}

// Each allocation of the host fails, alone or with some of the way back. A move may then have overwritten the source of
// a copy that was made ahead, and no event says so: the copy is brought back all the same.
TEST(Executor, WithoutHostMemoryWhatWasCopiedAheadIsUndone) {
  std::mt19937 random(12);
  int64_t n_failures = 0;
  for (int round = 0; round < 3; ++round) {
    World world(random_request(random));
    for (const int64_t n_at_once : {1, 8}) {
      bool reached = true;
      for (int64_t n = 0; reached; ++n) {
        SCOPED_TRACE(testing::Message() << "round " << round << ", " << n_at_once << " from allocation " << n << " on");
        copy_ahead_what_can_be(world);
        const Status status = run_without_memory(world, n, n_at_once);
        reached = end_failing_allocations() > 0;
        ASSERT_EQ(world.n_wrong(status.ok() ? &Extent::to : &Extent::from), 0) << status.message();
        if (status.ok()) {
          world.fill();
        } else {
          ASSERT_EQ(status.code(), ErrorCode::kOutOfMemory) << status.message();
          ++n_failures;
        }
      }
    }
  }
  std::cout << "3 transitions: " << n_failures << " times without memory undone\n";
  EXPECT_GT(n_failures, 400);
}

TEST(Executor, ACopyAheadThatFailsIsSaid) {
  World world({.extents = {{4 * kUnit, {0, 0}, {1, 0}}, {4 * kUnit, {1, 4 * kUnit}, {0, 4 * kUnit}}},
               .pools = {{kUnit, UINT64_MAX}, {kUnit, UINT64_MAX}, {kUnit, UINT64_MAX}}});
  for (size_t d = 0; d < 2; ++d) {
    world.arm(d, {.fail_at_command = 0});
    EXPECT_EQ(copy_ahead(world.work).code(), ErrorCode::kInternal);
    EXPECT_EQ(world.n_wrong(&Extent::from), 0);
  }
  world.arm(0, {.die_at_command = 0});
  EXPECT_EQ(copy_ahead(world.work).code(), ErrorCode::kDeviceLost);
}

// What a missing wait would let go wrong shows when copies take their time.
TEST(Executor, MovesWaitForWhatTheyNeed) {
  std::mt19937 random(8);
  for (int round = 0; round < 40; ++round) {
    World world(random_request(random));
    for (size_t d = 0; d < kDevices; ++d) {
      world.devices[d]->arm({.seed = static_cast<uint64_t>(round), .delay_probability = 0.5, .max_delay_us = 200});
    }
    ASSERT_TRUE(run_transition(world.work, {}).ok());
    ASSERT_EQ(world.n_wrong(&Extent::to), 0) << "round " << round;
  }
}

TEST(Executor, StopsWhenProgressSaysSoAndAtTheDeadline) {
  std::mt19937 random(9);
  int64_t n_stops = 0;
  for (int round = 0; round < 20; ++round) {
    World world(random_request(random));
    bool stopped = true;
    for (int n = 0; stopped; ++n) {
      SCOPED_TRACE(testing::Message() << "round " << round << ", call " << n);
      double last = -1;
      int n_calls = 0;
      const Status status = run_transition(world.work, {{}, [&](double part) {
                                                          EXPECT_GE(part, last);
                                                          EXPECT_LE(part, 1);
                                                          last = part;
                                                          return n_calls++ < n;
                                                        }});
      stopped = !status.ok();
      n_stops += stopped ? 1 : 0;
      ASSERT_EQ(status.code(), stopped ? ErrorCode::kCancelled : ErrorCode::kOk);
      ASSERT_EQ(world.n_wrong(stopped ? &Extent::from : &Extent::to), 0);
      EXPECT_EQ(last, stopped ? last : 1);
    }
  }
  EXPECT_GT(n_stops, 200);
  World world(random_request(random));
  const auto passed = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  EXPECT_EQ(run_transition(world.work, {passed, {}}).code(), ErrorCode::kDeadlineExceeded);
  // In the middle: the deadline passes while progress is told of the first bytes.
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  const Status status = run_transition(world.work, {soon, [&](double part) {
                                                      while (part > 0 && std::chrono::steady_clock::now() < soon) {
                                                      }
                                                      return true;
                                                    }});
  EXPECT_EQ(status.code(), ErrorCode::kDeadlineExceeded) << status.message();
  EXPECT_EQ(world.n_wrong(&Extent::from), 0);
  EXPECT_TRUE(run_transition(world.work, {}).ok());
}

TEST(Executor, ALostDeviceIsSaid) {
  std::mt19937 random(10);
  for (int round = 0; round < 40; ++round) {
    World world(random_request(random));
    const auto d = static_cast<size_t>(round % kDevices);
    world.arm(d, {.die_at_command = static_cast<int64_t>(random() % 4)});
    const Status status = run_transition(world.work, {});
    const FaultCounts counts = world.devices[d]->counts();
    EXPECT_EQ(status.code(), status.ok() ? ErrorCode::kOk : ErrorCode::kDeviceLost) << status.message();
    if (!status.ok()) {
      EXPECT_NE(status.message().find(world.devices[d]->info().name), std::string::npos) << status.message();
      EXPECT_GT(counts.n_commands, 0);
      EXPECT_EQ(world.devices[d]->make_queue().status().code(), ErrorCode::kDeviceLost);
    }
  }
}

TEST(Executor, CountsBytesByWhereTheyGo) {
  World world({.extents = {{4 * kUnit, {0, 0}, {1, 0}}, {2 * kUnit, {3, 0}, {0, 0}}, {kUnit, {1, 0}, {0, 4 * kUnit}}},
               .pools = {{kUnit, UINT64_MAX}, {kUnit, UINT64_MAX}, {kUnit, UINT64_MAX}, {kUnit, UINT64_MAX, 0}}});
  const TransitionBytes bytes = count_bytes(world.work);
  EXPECT_EQ(bytes.moved, 5 * kUnit);  // pool 3 lies on device 0
  EXPECT_EQ(bytes.local, 2 * kUnit);
}

}  // namespace
}  // namespace tessera

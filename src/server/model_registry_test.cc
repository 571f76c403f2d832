#include "server/model_registry.h"

#include <algorithm>
#include <condition_variable>
#include <fmt/format.h>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

using Lease = ModelRegistry::Lease;
using Claims = std::vector<DeviceClaim>;

constexpr uint64_t kMiB = 1 << 20;
constexpr auto kForEver = std::chrono::hours(24);

// What the test and the source share: what models need, which of them fail, and what happened.
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Claims> claims;  // of models that are not loaded, and of those that are
  std::map<size_t, Status> count_failures;
  std::map<size_t, Status> load_failures;
  std::vector<size_t> begun;        // loads
  std::vector<std::string> splits;  // that they were asked to have
  std::string bad_split;            // under which no model can be loaded
  std::vector<bool> alive;
  bool gate_open = true;  // else loads wait
  bool saw_cancel = false;
  char nothing = 0;  // what stands for a model, into which nobody looks

  explicit World(std::vector<Claims> c) : claims(std::move(c)), alive(claims.size()) {}

  void open_gate(bool open) {
    const std::lock_guard lock(mutex);
    gate_open = open;
    changed.notify_all();
  }
  void move(size_t model, Claims to) {
    const std::lock_guard lock(mutex);
    claims[model] = std::move(to);
  }
  void wait_for_load(size_t n_begun) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return begun.size() >= n_begun; });
  }
  std::vector<size_t> loads() {
    const std::lock_guard lock(mutex);
    return begun;
  }
};

class FakeSource final : public ModelSource {
 public:
  explicit FakeSource(std::shared_ptr<World> world) : world_(std::move(world)) {}

  Result<Claims> count(size_t model, const LoadPlacement& /*placement*/) override {
    const std::lock_guard lock(world_->mutex);
    const auto failure = world_->count_failures.find(model);
    return failure == world_->count_failures.end() ? Result<Claims>(world_->claims[model]) : failure->second;
  }

  Result<Lease> load(size_t model, const LoadPlacement& placement, const std::atomic<bool>& cancelled) override {
    World& world = *world_;
    std::unique_lock lock(world.mutex);
    world.begun.push_back(model);
    world.splits.push_back(placement.split_mode.value_or(""));
    world.changed.notify_all();
    for (const DeviceClaim& claim : world.claims[model]) {
      uint64_t used = claim.bytes;
      for (size_t other = 0; other < world.claims.size(); ++other) {
        for (const DeviceClaim& theirs : world.claims[other]) {
          used += world.alive[other] && theirs.device == claim.device ? theirs.bytes : 0;
        }
      }
      EXPECT_LE(used, claim.budget_bytes) << "model " << model << " on " << claim.device;
    }
    while (!world.gate_open && !cancelled) {
      world.changed.wait_for(lock, std::chrono::milliseconds(1));
    }
    if (cancelled) {
      world.saw_cancel = true;
      return Status(ErrorCode::kCancelled, "stopped");
    }
    if (const auto failure = world.load_failures.find(model); failure != world.load_failures.end()) {
      return failure->second;
    }
    if (!world.bad_split.empty() && placement.split_mode == world.bad_split) {
      return Status(ErrorCode::kDoesNotFit, "not so");
    }
    EXPECT_FALSE(world.alive[model]);
    world.alive[model] = true;
    std::shared_ptr<void> life(nullptr, [world = world_, model](void*) {
      const std::lock_guard death(world->mutex);
      world->alive[model] = false;
    });
    return Lease(std::move(life), static_cast<ServedModel*>(static_cast<void*>(&world.nothing)));
  }

  Claims present(size_t model, const ServedModel& /*served*/) override {
    const std::lock_guard lock(world_->mutex);
    return world_->claims[model];
  }

 private:
  const std::shared_ptr<World> world_;
};

// Models of so many MiB on one device of `budget` MiB.
std::vector<Claims> on_one_device(const std::vector<uint64_t>& mib, uint64_t budget) {
  std::vector<Claims> claims;
  for (const uint64_t each : mib) {
    claims.push_back({{"cpu:0", each * kMiB, budget * kMiB}});
  }
  return claims;
}

class Registry {
 public:
  explicit Registry(std::vector<Claims> claims, const ModelRegistryOptions& options = {.wait = {}})
      : world(std::make_shared<World>(std::move(claims))) {
    std::vector<std::string> names;
    for (size_t i = 0; i < world->claims.size(); ++i) {
      names.push_back(fmt::format("m{}", i));
    }
    models = ModelRegistry::start(std::move(names), std::make_unique<FakeSource>(world), options).value();
  }

  std::future<Result<Lease>> ask(size_t model, std::function<bool()> gone = {}, LoadPlacement placement = {}) const {
    auto promise = std::make_shared<std::promise<Result<Lease>>>();
    models->acquire(
        model, std::move(gone), [promise](Result<Lease> lease) { promise->set_value(std::move(lease)); },
        std::move(placement));
    return promise->get_future();
  }
  Result<Lease> get(size_t model) const { return ask(model).get(); }
  std::future<Status> unload(size_t model) const {
    auto promise = std::make_shared<std::promise<Status>>();
    EXPECT_TRUE(models->unload(model, [promise](Status status) { promise->set_value(std::move(status)); }).ok());
    return promise->get_future();
  }
  ModelPhase phase(size_t model) const { return models->list()[model].phase; }
  ModelPhase settled_phase(size_t model) const {
    while (phase(model) == ModelPhase::kLoading) {
      std::this_thread::yield();
    }
    return phase(model);
  }
  std::vector<size_t> loaded() const {
    std::vector<size_t> all;
    for (size_t i = 0; i < models->size(); ++i) {
      if (phase(i) == ModelPhase::kLoaded) {
        all.push_back(i);
      }
    }
    return all;
  }

  std::shared_ptr<World> world;
  std::shared_ptr<ModelRegistry> models;
};

bool is_pending(const std::future<Result<Lease>>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
}

TEST(ModelRegistry, LoadsOnDemandAndOnce) {
  const Registry registry(on_one_device({1, 1}, 8));
  EXPECT_EQ(registry.phase(0), ModelPhase::kUnloaded);
  EXPECT_EQ(registry.models->peek(0), nullptr);
  EXPECT_TRUE(registry.get(0).ok());
  EXPECT_EQ(registry.phase(0), ModelPhase::kLoaded);
  EXPECT_NE(registry.models->peek(0), nullptr);
  bool answered = false;
  EXPECT_FALSE(registry.models->acquire(0, {}, [&](const Result<Lease>& lease) { answered = lease.ok(); }));
  EXPECT_TRUE(answered);
  EXPECT_THAT(registry.world->loads(), ElementsAre(0));
}

TEST(ModelRegistry, IsLoadedAsTheFirstWhoSaysWantsIt) {
  const Registry registry(on_one_device({1, 1}, 8));
  registry.world->open_gate(false);
  const auto busy = registry.ask(0);
  registry.world->wait_for_load(1);
  auto any = registry.ask(1);
  auto layer = registry.ask(1, {}, {.split_mode = "layer"});
  auto tensor = registry.ask(1, {}, {.split_mode = "tensor"});
  registry.world->open_gate(true);
  EXPECT_TRUE(any.get().ok() && layer.get().ok() && tensor.get().ok());
  EXPECT_THAT(registry.world->loads(), ElementsAre(0, 1));
  EXPECT_THAT(registry.world->splits, ElementsAre("", "layer"));
}

TEST(ModelRegistry, APlacementThatCannotBeHadFailsThoseAloneWhoAskedForIt) {
  const Registry registry(on_one_device({1, 1}, 8));
  registry.world->bad_split = "layer";
  registry.world->open_gate(false);
  const auto busy = registry.ask(0);
  registry.world->wait_for_load(1);
  auto layer = registry.ask(1, {}, {.split_mode = "layer"});
  auto any = registry.ask(1);
  registry.world->open_gate(true);
  EXPECT_EQ(layer.get().status().code(), ErrorCode::kDoesNotFit);
  EXPECT_TRUE(any.get().ok());
  EXPECT_THAT(registry.world->splits, ElementsAre("", "layer", ""));
  EXPECT_EQ(registry.phase(1), ModelPhase::kLoaded);
}

TEST(ModelRegistry, UnknownNamesAreToldTheKnownOnes) {
  const Registry registry(on_one_device({1, 1}, 8));
  EXPECT_EQ(registry.models->find("m1").value(), 1U);
  const Status status = registry.models->find("m2").status();
  EXPECT_EQ(status.code(), ErrorCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("no model \"m2\"; this server has m0, m1"));
}

TEST(ModelRegistry, IdleModelsGoByLastUseAndBytes) {
  const Registry registry(on_one_device({4, 4, 6, 10}, 10));
  EXPECT_TRUE(registry.get(0).ok());
  EXPECT_TRUE(registry.get(1).ok());
  EXPECT_TRUE(registry.get(0).ok());
  EXPECT_NE(registry.models->peek(1), nullptr) << "which is no use of it";
  EXPECT_TRUE(registry.get(2).ok());
  EXPECT_THAT(registry.loaded(), ElementsAre(0, 2));
  EXPECT_TRUE(registry.get(3).ok());
  EXPECT_THAT(registry.loaded(), ElementsAre(3));
}

TEST(ModelRegistry, ModelsThatLieElsewhereStay) {
  const DeviceClaim a{"cpu:0", 6 * kMiB, 10 * kMiB};
  const DeviceClaim b{"cpu:1", 6 * kMiB, 10 * kMiB};
  const Registry registry({{a}, {b}, {b}, {a, b}});
  for (size_t model : {0, 1, 2}) {
    EXPECT_TRUE(registry.get(model).ok());
  }
  EXPECT_THAT(registry.loaded(), ElementsAre(0, 2));
  EXPECT_TRUE(registry.get(3).ok());
  EXPECT_THAT(registry.loaded(), ElementsAre(3));
}

TEST(ModelRegistry, ModelsThatMovedCountWhereTheyAreNow) {
  const Registry registry(
      {{{"cpu:0", 6 * kMiB, 8 * kMiB}}, {{"cpu:1", 6 * kMiB, 8 * kMiB}}, {{"cpu:0", 6 * kMiB, 8 * kMiB}}});
  EXPECT_TRUE(registry.get(0).ok());
  registry.world->move(0, {{"cpu:1", 6 * kMiB, 8 * kMiB}});
  EXPECT_TRUE(registry.get(2).ok());
  EXPECT_THAT(registry.loaded(), ElementsAre(0, 2));
  EXPECT_TRUE(registry.get(1).ok());
  EXPECT_THAT(registry.loaded(), ElementsAre(1, 2));
}

TEST(ModelRegistry, AtMostSoMany) {
  const Registry registry(on_one_device({1, 1, 1}, 8), {.models_max = 2, .wait = {}});
  Lease first = registry.get(0).value();
  Lease second = registry.get(1).value();
  EXPECT_THAT(registry.get(2).status().message(),
              HasSubstr("--models-max allows 2 at once. Try again later, or raise --models-max"));
  first.reset();
  EXPECT_TRUE(registry.get(2).ok());
  EXPECT_THAT(registry.loaded(), ElementsAre(1, 2));
}

TEST(ModelRegistry, AdviceNamesEveryLimitThatIsMet) {
  const Registry both(on_one_device({6, 7}, 10), {.models_max = 1, .wait = {}});
  const Lease in_use = both.get(0).value();
  EXPECT_THAT(both.get(1).status().message(), HasSubstr("or raise --models-max and --device-memory"));
  const Registry memory(on_one_device({6, 7}, 10), {.models_max = 2, .wait = {}});
  const Lease in_use_too = memory.get(0).value();
  EXPECT_THAT(memory.get(1).status().message(), EndsWith("or raise --device-memory"));
}

TEST(ModelRegistry, WhatIsInUseNeverGoes) {
  const Registry registry(on_one_device({6, 2, 7}, 10));
  Lease in_use = registry.get(0).value();
  EXPECT_TRUE(registry.get(1).ok());
  const Status status = registry.get(2).status();
  EXPECT_EQ(status.code(), ErrorCode::kCancelled);
  EXPECT_THAT(status.message(), HasSubstr("model m2"));
  EXPECT_THAT(status.message(), HasSubstr("needs 7.0 MiB of cpu:0, which has 10.0 and of these in use: m0 6.0."));
  EXPECT_THAT(registry.loaded(), ElementsAre(0, 1)) << "an idle one goes only where that is enough";
  in_use.reset();
  EXPECT_TRUE(registry.get(2).ok());
}

TEST(ModelRegistry, ALoadWaitsForRoom) {
  const Registry registry(on_one_device({6, 6, 2}, 10), {.wait = kForEver});
  Lease in_use = registry.get(0).value();
  auto waiting = registry.ask(1);
  EXPECT_EQ(registry.phase(1), ModelPhase::kLoading);
  EXPECT_TRUE(registry.get(2).ok()) << "what fits does not wait for what does not";
  EXPECT_TRUE(is_pending(waiting));
  in_use.reset();
  EXPECT_TRUE(waiting.get().ok());
  EXPECT_THAT(registry.loaded(), ElementsAre(1, 2));
}

TEST(ModelRegistry, AFailedLoadIsToldAndTriedAgain) {
  const Registry registry(on_one_device({4, 4, 8}, 10));
  EXPECT_TRUE(registry.get(0).ok());
  registry.world->load_failures[1] = {ErrorCode::kInvalidData, "damaged"};
  EXPECT_EQ(registry.get(1).status().message(), "damaged");
  EXPECT_EQ(registry.phase(1), ModelPhase::kFailed);
  EXPECT_EQ(registry.models->list()[1].failure.message(), "damaged");
  registry.world->count_failures[2] = {ErrorCode::kNotFound, "no such file"};
  EXPECT_EQ(registry.get(2).status().message(), "no such file");
  EXPECT_THAT(registry.loaded(), ElementsAre(0)) << "nobody made room for it";
  registry.world->load_failures.clear();
  EXPECT_TRUE(registry.get(1).ok());
  EXPECT_THAT(registry.loaded(), ElementsAre(0, 1));
}

TEST(ModelRegistry, OneLoadAtATimeWhileOthersGoOn) {
  const Registry registry(on_one_device({1, 1, 1}, 8));
  EXPECT_TRUE(registry.get(0).ok());
  registry.world->open_gate(false);
  auto first = registry.ask(2);
  registry.world->wait_for_load(2);
  auto second = registry.ask(1);
  auto also_first = registry.ask(2);
  EXPECT_TRUE(registry.get(0).ok());
  EXPECT_TRUE(is_pending(first) && is_pending(second) && is_pending(also_first));
  registry.world->open_gate(true);
  EXPECT_TRUE(first.get().ok() && second.get().ok() && also_first.get().ok());
  EXPECT_THAT(registry.world->loads(), ElementsAre(0, 2, 1));
}

TEST(ModelRegistry, NothingIsLoadedForClientsThatLeft) {
  const Registry registry(on_one_device({1, 1, 1}, 8));
  registry.world->open_gate(false);
  auto first = registry.ask(0);
  registry.world->wait_for_load(1);
  std::atomic<bool> gone = false;
  auto second = registry.ask(1, [&] { return gone.load(); });
  auto third = registry.ask(2, [&] { return gone.load(); });
  EXPECT_TRUE(registry.models->load(2).code() == ErrorCode::kInvalidArgument) << "it is on its way";
  gone = true;
  registry.models->wake();
  registry.world->open_gate(true);
  EXPECT_EQ(second.get().status().code(), ErrorCode::kCancelled);
  EXPECT_EQ(third.get().status().code(), ErrorCode::kCancelled);
  EXPECT_THAT(registry.world->loads(), ElementsAre(0));
  EXPECT_EQ(registry.phase(1), ModelPhase::kUnloaded);
}

TEST(ModelRegistry, LoadAndUnloadByName) {
  const Registry registry(on_one_device({1}, 8));
  EXPECT_FALSE(registry.models->unload(0, {}).ok());
  EXPECT_TRUE(registry.models->load(0).ok());
  EXPECT_EQ(registry.settled_phase(0), ModelPhase::kLoaded);
  EXPECT_FALSE(registry.models->load(0).ok());
  EXPECT_TRUE(registry.unload(0).get().ok());
  EXPECT_FALSE(registry.world->alive[0]);
  EXPECT_EQ(registry.phase(0), ModelPhase::kUnloaded);
}

TEST(ModelRegistry, UnloadWaitsForTheLastUser) {
  const Registry registry(on_one_device({1}, 8));
  Lease in_use = registry.get(0).value();
  auto gone = registry.unload(0);
  auto next = registry.ask(0);
  EXPECT_EQ(gone.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_TRUE(is_pending(next));
  in_use.reset();
  EXPECT_TRUE(gone.get().ok());
  EXPECT_TRUE(next.get().ok()) << "it is loaded again";
  EXPECT_THAT(registry.world->loads(), ElementsAre(0, 0));
}

TEST(ModelRegistry, UnloadStopsALoad) {
  const Registry registry(on_one_device({1, 1}, 8));
  registry.world->open_gate(false);
  auto running = registry.ask(0);
  registry.world->wait_for_load(1);
  auto queued = registry.ask(1);
  auto first_gone = registry.unload(0);
  auto second_gone = registry.unload(1);
  EXPECT_TRUE(first_gone.get().ok() && second_gone.get().ok());
  EXPECT_THAT(running.get().status().message(), HasSubstr("unloaded meanwhile"));
  EXPECT_THAT(queued.get().status().message(), HasSubstr("unloaded meanwhile"));
  EXPECT_TRUE(registry.world->saw_cancel);
  EXPECT_THAT(registry.world->loads(), ElementsAre(0));
  registry.world->open_gate(true);
  EXPECT_TRUE(registry.get(0).ok());
}

TEST(ModelRegistry, StopEndsALoadAndAnswersAll) {
  const Registry registry(on_one_device({1, 1, 1}, 8));
  Lease in_use = registry.get(2).value();
  registry.world->open_gate(false);
  auto running = registry.ask(0);
  registry.world->wait_for_load(2);
  auto queued = registry.ask(1);
  auto gone = registry.unload(2);
  registry.models->stop();
  EXPECT_TRUE(registry.world->saw_cancel);
  EXPECT_EQ(running.get().status().code(), ErrorCode::kCancelled);
  EXPECT_EQ(queued.get().status().code(), ErrorCode::kCancelled);
  EXPECT_EQ(gone.get().code(), ErrorCode::kCancelled);
  EXPECT_EQ(registry.get(0).status().code(), ErrorCode::kCancelled);
  EXPECT_EQ(registry.models->load(0).code(), ErrorCode::kCancelled);
  EXPECT_NE(registry.models->peek(2), nullptr) << "what is loaded stays";
}

TEST(ModelRegistry, TheLastUserMayOutliveIt) {
  Lease last;
  std::shared_ptr<World> world;
  {
    const Registry registry(on_one_device({1}, 8));
    world = registry.world;
    last = registry.get(0).value();
  }
  EXPECT_TRUE(world->alive[0]);
  last.reset();
  EXPECT_FALSE(world->alive[0]);
}

// What a registry with wait 0 must do, said in the plainest way.
class Reference {
 public:
  struct State {
    bool loaded = false;
    uint64_t last_use = 0;
    int n_users = 0;
    bool leaving = false;
  };

  explicit Reference(const std::vector<Claims>& claims, int64_t models_max)
      : claims_(claims), models_max_(models_max), states(claims.size()) {}

  void use(size_t model) { states[model].last_use = ++tick_; }

  // Whether there is room now or once idle models have gone, which then go.
  bool make_room(size_t model) {
    std::vector<size_t> idle;
    for (size_t i = 0; i < states.size(); ++i) {
      if (states[i].loaded && states[i].n_users == 0) {
        idle.push_back(i);
      }
    }
    std::ranges::sort(idle, {}, [&](size_t i) { return states[i].last_use; });
    std::vector<bool> stays;
    for (const State& state : states) {
      stays.push_back(state.loaded);
    }
    for (const size_t i : idle) {
      if (lacks(model, stays, i)) {
        stays[i] = false;
      }
    }
    if (lacks(model, stays, std::nullopt)) {
      return false;
    }
    for (auto i = idle.rbegin(); i != idle.rend(); ++i) {
      const bool went = !stays[*i];
      stays[*i] = true;
      stays[*i] = !went || !lacks(model, stays, std::nullopt);
    }
    for (const size_t i : idle) {
      states[i].loaded = stays[i];
    }
    return true;
  }

 private:
  // Whether something lacks for the model; where a helper is given, something that its going would give.
  bool lacks(size_t model, const std::vector<bool>& stays, std::optional<size_t> helper) const {
    if (models_max_ > 0 && std::ranges::count(stays, true) >= models_max_) {
      return true;
    }
    return std::ranges::any_of(claims_[model], [&](const DeviceClaim& claim) {
      uint64_t used = 0;
      for (size_t i = 0; i < stays.size(); ++i) {
        used += stays[i] ? bytes(i, claim.device) : 0;
      }
      return used > 0 && used + claim.bytes > claim.budget_bytes && (!helper || bytes(*helper, claim.device) > 0);
    });
  }
  uint64_t bytes(size_t model, const std::string& device) const {
    for (const DeviceClaim& claim : claims_[model]) {
      if (claim.device == device) {
        return claim.bytes;
      }
    }
    return 0;
  }

  const std::vector<Claims> claims_;
  const int64_t models_max_;
  uint64_t tick_ = 0;

 public:
  std::vector<State> states;
};

class RandomWalk {
 public:
  RandomWalk(std::mt19937_64& random, const std::vector<Claims>& claims, int64_t models_max)
      : random_(random),
        registry_(claims, {.models_max = models_max, .wait = {}}),
        reference_(claims, models_max),
        leases_(claims.size()),
        farewells_(claims.size()) {}

  void step() {
    const size_t model = random_() % leases_.size();
    switch (random_() % 8) {
      case 0:
      case 1:
      case 2: use(model); break;
      case 3:
      case 4: drop(model); break;
      case 5: load(model); break;
      case 6: unload(model); break;
      default: break_or_mend(model);
    }
    for (size_t i = 0; i < leases_.size(); ++i) {
      ASSERT_EQ(registry_.settled_phase(i) == ModelPhase::kLoaded, reference_.states[i].loaded) << "model " << i;
    }
  }

 private:
  bool fails(const std::map<size_t, Status>& failures, size_t model) const { return failures.contains(model); }

  // The code with which a load must end.
  ErrorCode expected_load(size_t model) {
    if (fails(registry_.world->count_failures, model)) {
      return ErrorCode::kNotFound;
    }
    if (!reference_.make_room(model)) {
      return ErrorCode::kCancelled;
    }
    if (fails(registry_.world->load_failures, model)) {
      return ErrorCode::kInvalidData;
    }
    reference_.states[model].loaded = true;
    reference_.use(model);
    return ErrorCode::kOk;
  }

  void use(size_t model) {
    Reference::State& state = reference_.states[model];
    if (state.leaving) {
      return;
    }
    const ErrorCode expected = state.loaded ? ErrorCode::kOk : expected_load(model);
    Result<Lease> lease = registry_.get(model);
    ASSERT_EQ(lease.status().code(), expected) << lease.status().message();
    if (lease.ok()) {
      reference_.use(model);
      ++state.n_users;
      leases_[model].push_back(std::move(*lease));
      if (random_() % 2 == 0) {
        drop(model);
      }
    }
  }

  void drop(size_t model) {
    Reference::State& state = reference_.states[model];
    if (leases_[model].empty()) {
      return;
    }
    leases_[model].pop_back();
    --state.n_users;
    reference_.use(model);
    if (state.leaving && state.n_users == 0) {
      ASSERT_TRUE(farewells_[model].get().ok());
      state = {.loaded = false, .last_use = state.last_use};
    }
  }

  void load(size_t model) {
    const Reference::State& state = reference_.states[model];
    if (state.leaving) {
      return;
    }
    const bool was_loaded = state.loaded;
    ASSERT_EQ(registry_.models->load(model).ok(), !was_loaded);
    if (!was_loaded) {
      const ErrorCode expected = expected_load(model);
      registry_.settled_phase(model);
      const Status failure = registry_.models->list()[model].failure;
      ASSERT_EQ(failure.code(), expected == ErrorCode::kCancelled ? ErrorCode::kOk : expected);
    }
  }

  void unload(size_t model) {
    Reference::State& state = reference_.states[model];
    if (state.leaving) {
      return;
    }
    if (!state.loaded) {
      ASSERT_FALSE(registry_.models->unload(model, {}).ok());
      return;
    }
    farewells_[model] = registry_.unload(model);
    state.leaving = state.n_users > 0;
    if (!state.leaving) {
      ASSERT_TRUE(farewells_[model].get().ok());
      state.loaded = false;
    }
  }

  void break_or_mend(size_t model) {
    const std::lock_guard lock(registry_.world->mutex);
    auto& failures = random_() % 2 == 0 ? registry_.world->count_failures : registry_.world->load_failures;
    if (failures.erase(model) == 0 && random_() % 3 == 0) {
      const bool counts = &failures == &registry_.world->count_failures;
      failures[model] = {counts ? ErrorCode::kNotFound : ErrorCode::kInvalidData, "broken"};
    }
  }

  std::mt19937_64& random_;
  Registry registry_;
  Reference reference_;
  std::vector<std::vector<Lease>> leases_;
  std::vector<std::future<Status>> farewells_;
};

TEST(ModelRegistry, RandomOperationsGoAsInAPlainModel) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    std::vector<Claims> claims(2 + random() % 5);
    for (Claims& each : claims) {
      for (const char* device : {"cpu:0", "cpu:1"}) {
        if (each.empty() || random() % 2 == 0) {
          each.push_back({device, (1 + random() % 10) * kMiB, 12 * kMiB});
        }
      }
    }
    RandomWalk walk(random, claims, static_cast<int64_t>(random() % 4));
    for (int i = 0; i < 150; ++i) {
      SCOPED_TRACE(fmt::format("step {}", i));
      walk.step();
      if (testing::Test::HasFatalFailure()) {
        return;
      }
    }
  }
}

}  // namespace
}  // namespace tessera

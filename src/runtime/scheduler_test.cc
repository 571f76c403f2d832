// The scheduler over the real book of pages: by hand, and simulated with seeds.

#include "runtime/scheduler.h"

#include <algorithm>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SequenceMemory make_memory(KvCacheConfig kv, RecMemoryConfig rec = {}) {
  auto memory = SequenceMemory::create(std::move(kv), rec);
  CHECK(memory.ok());
  return std::move(memory).value();
}

// Ids that begin as those of any other call with the same family.
std::vector<int32_t> ids(int32_t family, int64_t n) {
  std::vector<int32_t> result(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    result[static_cast<size_t>(i)] = static_cast<int32_t>(family * 1000 + i);
  }
  return result;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The last few rows that left their slots, to be had as wholes.
class Shelf : public KeptPrefixes {
 public:
  [[nodiscard]] int64_t longest(std::span<const int32_t> tokens) const override {
    int64_t best = 0;
    for (const std::vector<int32_t>& row : rows_) {
      const bool fits = row.size() <= tokens.size() && std::ranges::equal(row, tokens.first(row.size()));
      best = fits ? std::max(best, static_cast<int64_t>(row.size())) : best;
    }
    return best;
  }
  void put(const std::vector<int32_t>& row) {
    if (!row.empty()) {
      rows_.push_back(row);
    }
    if (rows_.size() > 12) {
      rows_.erase(rows_.begin());
    }
  }

 private:
  std::vector<std::vector<int32_t>> rows_;
};

// Carries steps out: on the book, and on what each slot would hold.
class World {
 public:
  // keeps: what leaves its slot may come back.
  World(SequenceMemory memory, const SchedulerOptions& options, bool keeps = false)
      : memory_(std::move(memory)),
        options_(options),
        keeps_(keeps),
        scheduler_(memory_, options, keeps ? &shelf_ : nullptr),
        contents_(static_cast<size_t>(memory_.kv().config().n_seq_max)) {}

  Scheduler& scheduler() { return scheduler_; }
  SequenceMemory& memory() { return memory_; }
  [[nodiscard]] const std::vector<int32_t>& content(int32_t slot) const { return contents_[static_cast<size_t>(slot)]; }

  void submit(int64_t id, std::vector<int32_t> tokens) {
    SchedulerRequest request;
    request.id = id;
    request.tokens = std::move(tokens);
    ASSERT_TRUE(scheduler_.submit(std::move(request), now_).ok());
  }

  // The next batch, its moves made. Its outputs have all their tokens in their slots.
  const SchedulerStep& step() {
    ++now_;
    int n_rounds = 0;
    while (true) {
      const SchedulerStep& step = scheduler_.next_step(now_);
      if (step.moves.empty()) {
        decode(step);
        return step;
      }
      EXPECT_THAT(step.batch, IsEmpty());
      std::ranges::for_each(step.moves, [&](const SequenceMove& m) { make(m); });
      // Each slot is emptied at most once, and filled once.
      if (++n_rounds > 3 * scheduler_.n_slots()) {
        ADD_FAILURE() << "moves without end";
        return step;
      }
    }
  }

  void end(int64_t id) { scheduler_.end(id, now_); }
  [[nodiscard]] int64_t now() const { return now_; }
  [[nodiscard]] int64_t n_restored() const { return n_restored_; }

 private:
  // Every fifth state turns out to be of no use.
  void bring_back(const SequenceMove& move) {
    std::vector<RecMove> moves;
    std::vector<int64_t> first;
    for (const KvClassConfig& klass : memory_.kv().config().classes) {
      const int64_t n_behind = klass.window > 0 ? std::max<int64_t>(move.length - klass.window, 0) : 0;
      first.push_back(n_behind / kPageTokens * kPageTokens);
    }
    int64_t length = ++n_restored_ % 5 == 0 ? 0 : move.length;
    if (length > 0) {
      const Status status = memory_.restore(move.to, length, first, {});
      ASSERT_TRUE(status.ok()) << status.message();
    } else {
      ASSERT_TRUE(memory_.truncate(move.to, 0, moves).ok());
    }
    const std::span<const int32_t> held = scheduler_.held(move.to);
    ASSERT_EQ(static_cast<int64_t>(held.size()), move.length);
    contents_[static_cast<size_t>(move.to)].assign(held.begin(), held.begin() + length);
    scheduler_.restored(move.to, length);
  }

  void make(const SequenceMove& move) {
    std::vector<RecMove> moves;
    std::vector<int32_t>& to = contents_[static_cast<size_t>(move.to)];
    if (keeps_) {
      shelf_.put(to);
    }
    if (move.from == kFromKept) {
      bring_back(move);
      return;
    }
    if (move.from >= 0) {
      EXPECT_TRUE(memory_.fork(move.from, move.to, move.length, moves).ok());
      to = contents_[static_cast<size_t>(move.from)];
    } else {
      EXPECT_TRUE(memory_.truncate(move.to, move.length, moves).ok());
    }
    ASSERT_GE(to.size(), static_cast<size_t>(move.length));
    to.resize(static_cast<size_t>(move.length));
  }

  void decode(const SchedulerStep& step) {
    EXPECT_LE(static_cast<int64_t>(step.batch.size()), options_.step_tokens);
    std::vector<KvToken> tokens;
    std::vector<int32_t> wanted;
    for (const BatchToken& token : step.batch) {
      tokens.push_back({token.seq});
      contents_[static_cast<size_t>(token.seq)].push_back(token.token);
      if (token.wants_logits) {
        wanted.push_back(token.seq);
      }
    }
    MemoryBatch batch;
    const Status status = memory_.prepare(tokens, batch);
    ASSERT_TRUE(status.ok()) << status.message();
    memory_.trim_windows();
    ASSERT_EQ(wanted.size(), step.outputs.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto request = scheduler_.tokens(step.outputs[i]);
      ASSERT_EQ(scheduler_.view(step.outputs[i]).slot, wanted[i]);
      ASSERT_TRUE(std::ranges::equal(request, content(wanted[i]))) << "request " << step.outputs[i];
    }
    for (const int32_t slot : step.snapshots) {
      std::vector<RecMove> moves;
      ASSERT_TRUE(memory_.snapshot(slot, moves).ok());
    }
    for (const int32_t slot : step.keeps) {
      shelf_.put(content(slot));
    }
  }

  SequenceMemory memory_;
  SchedulerOptions options_;
  bool keeps_;
  Shelf shelf_;
  Scheduler scheduler_;
  std::vector<std::vector<int32_t>> contents_;
  int64_t n_restored_ = 0;
  int64_t now_ = 0;
};

KvCacheConfig dense(int32_t n_slots, int64_t n_ctx, int64_t n_pages) {
  return {.classes = {{0, n_pages}}, .n_seq_max = n_slots, .n_ctx = n_ctx};
}

std::vector<std::pair<int32_t, int64_t>> tokens_by_slot(const SchedulerStep& step) {
  std::vector<std::pair<int32_t, int64_t>> result;
  for (const BatchToken& token : step.batch) {
    if (result.empty() || result.back().first != token.seq) {
      result.emplace_back(token.seq, 0);
    }
    ++result.back().second;
  }
  return result;
}

using Pair = std::pair<int32_t, int64_t>;

TEST(Scheduler, ReadsAPromptInPiecesAndThenOneTokenAtATime) {
  World world(make_memory(dense(2, 256, 16)), {.step_tokens = 64});
  world.submit(1, ids(1, 100));
  EXPECT_THAT(tokens_by_slot(world.step()), ElementsAre(Pair(0, 64)));
  const SchedulerStep& last = world.step();
  EXPECT_THAT(tokens_by_slot(last), ElementsAre(Pair(0, 36)));
  EXPECT_THAT(last.outputs, ElementsAre(1));
  world.scheduler().append(1, 7);
  EXPECT_THAT(tokens_by_slot(world.step()), ElementsAre(Pair(0, 1)));
  world.end(1);
  EXPECT_TRUE(world.step().empty());
}

TEST(Scheduler, ALongPromptDoesNotHoldUpThoseThatGenerateNorShortOnes) {
  World world(make_memory(dense(3, 1024, 96)), {.step_tokens = 64, .prompt_tokens = 16});
  world.submit(1, ids(1, 10));
  world.step();
  world.scheduler().append(1, 7);
  world.submit(2, ids(2, 900));
  world.submit(3, ids(3, 8));
  const SchedulerStep& step = world.step();
  EXPECT_THAT(tokens_by_slot(step), ElementsAre(Pair(0, 1), Pair(1, 8), Pair(2, 8)));
  EXPECT_THAT(step.outputs, ElementsAre(1, 3));
}

TEST(Scheduler, ReadersGetWhatTheCallerSaysWhileOthersGenerate) {
  World world(make_memory(dense(2, 1024, 96)), {.step_tokens = 64, .prompt_tokens = 16});
  world.submit(1, ids(1, 10));
  world.step();
  world.scheduler().append(1, 7);
  world.submit(2, ids(2, 300));
  world.scheduler().set_prompt_tokens(0);
  EXPECT_THAT(tokens_by_slot(world.step()), ElementsAre(Pair(0, 1)));
  world.scheduler().append(1, 7);
  world.scheduler().set_prompt_tokens(64);
  EXPECT_THAT(tokens_by_slot(world.step()), ElementsAre(Pair(0, 1), Pair(1, 63)));
  world.end(1);
  world.scheduler().set_prompt_tokens(0);  // nobody else is there
  EXPECT_THAT(tokens_by_slot(world.step()), ElementsAre(Pair(1, 64)));
}

TEST(Scheduler, SaysWhatIsWrongWithARequestAndWhenTheQueueIsFull) {
  World world(make_memory(dense(1, 64, 2)), {.n_queue = 1, .step_tokens = 64});
  Scheduler& scheduler = world.scheduler();
  EXPECT_EQ(scheduler.submit({.id = 1, .tokens = {}}, 0).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(scheduler.submit({.id = 1, .tokens = {1}, .slot = 1}, 0).code(), ErrorCode::kInvalidArgument);
  const Status longer = scheduler.submit({.id = 1, .tokens = ids(1, 65)}, 0);
  EXPECT_EQ(longer.code(), ErrorCode::kCacheFull);
  EXPECT_THAT(longer.message(), HasSubstr("65 tokens; a sequence takes 64"));
  world.submit(1, ids(1, 3));
  world.step();
  world.submit(2, ids(1, 3));
  const Status full = scheduler.submit({.id = 3, .tokens = {1}}, 0);
  EXPECT_EQ(full.code(), ErrorCode::kBusy);
  EXPECT_THAT(full.message(), HasSubstr("1 requests wait and 1 run"));
  world.end(2);
  world.submit(3, ids(1, 3));
}

TEST(Scheduler, PrioritiesAreWorthWaiting) {
  World world(make_memory(dense(1, 64, 2)), {.step_tokens = 64, .priority_us = 10});
  Scheduler& scheduler = world.scheduler();
  world.submit(1, {1});
  world.step();
  ASSERT_TRUE(scheduler.submit({.id = 2, .tokens = {2}}, 100).ok());
  ASSERT_TRUE(scheduler.submit({.id = 3, .tokens = {3}, .priority = 1}, 109).ok());
  ASSERT_TRUE(scheduler.submit({.id = 4, .tokens = {4}, .priority = 1}, 111).ok());
  for (const int64_t id : {3, 2, 4}) {
    world.end(scheduler.user(0));
    world.step();
    EXPECT_EQ(scheduler.user(0), id);
  }
}

TEST(Scheduler, AConversationGoesOnInItsSlotAndReadsOnlyWhatIsNew) {
  World world(make_memory(dense(2, 256, 16)), {.step_tokens = 64});
  world.submit(1, ids(1, 40));
  world.step();
  world.scheduler().append(1, 7);
  world.step();
  world.end(1);
  world.submit(2, ids(2, 10));
  world.step();
  world.end(2);
  world.submit(3, joined(joined(ids(1, 40), {7}), ids(3, 5)));
  EXPECT_THAT(tokens_by_slot(world.step()), ElementsAre(Pair(0, 5)));
  EXPECT_EQ(world.scheduler().view(3).n_cached, 41);
}

// Another conversation with the same system prompt leaves the first one alone and shares its pages.
TEST(Scheduler, ASecondConversationForksWhatItShares) {
  World world(make_memory(dense(2, 256, 16)), {.step_tokens = 128});
  world.submit(1, joined(ids(1, 64), ids(2, 20)));
  world.step();
  world.end(1);
  world.submit(2, joined(ids(1, 64), ids(3, 10)));
  EXPECT_THAT(tokens_by_slot(world.step()), ElementsAre(Pair(1, 10)));
  EXPECT_EQ(world.scheduler().counters().n_forks, 1U);
  EXPECT_EQ(world.memory().kv().pages_used(0), 4);  // 2 shared, one each
  EXPECT_EQ(world.content(0).size(), 84U);
}

// Choices of one prompt: it is read once.
TEST(Scheduler, EqualPromptsThatComeTogetherAreReadOnce) {
  World world(make_memory(dense(4, 256, 32)), {.step_tokens = 32});
  for (int64_t id = 1; id <= 4; ++id) {
    world.submit(id, ids(1, 100));
  }
  size_t n_read = 0;
  size_t n_outputs = 0;
  while (n_outputs < 4) {
    const SchedulerStep& step = world.step();
    n_read += step.batch.size();
    for (const int64_t id : step.outputs) {
      ++n_outputs;
      world.scheduler().append(id, static_cast<int32_t>(id));
    }
    n_read -= step.outputs.size();
  }
  EXPECT_LE(n_read, 100U + 8U);
  EXPECT_LE(world.memory().kv().pages_used(0), 7);
}

TEST(Scheduler, ARequestWaitsForItsOwnSlotWhileOthersPass) {
  World world(make_memory(dense(2, 64, 4)), {.step_tokens = 64});
  Scheduler& scheduler = world.scheduler();
  world.submit(1, ids(1, 3));
  world.step();
  ASSERT_TRUE(scheduler.submit({.id = 2, .tokens = {2}, .slot = 0}, 5).ok());
  ASSERT_TRUE(scheduler.submit({.id = 3, .tokens = {3}}, 6).ok());
  world.step();
  EXPECT_EQ(scheduler.view(2).slot, -1);
  EXPECT_EQ(scheduler.view(3).slot, 1);
  world.end(1);
  world.step();
  EXPECT_EQ(scheduler.view(2).slot, 0);
}

// Two sequences that grow share 4 pages: the younger gives way and goes on when the elder has ended.
TEST(Scheduler, TheYoungerGivesUpItsPagesAndIsReadAgain) {
  World world(make_memory(dense(2, 128, 4)), {.step_tokens = 64});
  Scheduler& scheduler = world.scheduler();
  world.submit(1, ids(1, 32));
  world.submit(2, ids(2, 31));
  int n_steps = 0;
  while (scheduler.counters().n_preempted == 0 && n_steps < 200) {
    const SchedulerStep step = world.step();
    ++n_steps;
    for (const int64_t id : step.outputs) {
      scheduler.append(id, static_cast<int32_t>(10 + n_steps));
    }
  }
  EXPECT_EQ(scheduler.view(2).slot, -1);
  const auto n_tokens = scheduler.view(2).n_tokens;
  world.end(1);
  const SchedulerStep& step = world.step();
  EXPECT_EQ(static_cast<int64_t>(step.batch.size()), n_tokens);
  EXPECT_THAT(step.outputs, ElementsAre(2));
}

TEST(Scheduler, IdleSlotsAreEmptiedOldestFirst) {
  World world(make_memory(dense(3, 128, 5)), {.step_tokens = 128});
  for (const int32_t family : {1, 2, 3}) {
    world.submit(family, ids(family, 32));
    world.step();
    world.end(family);
  }
  world.submit(4, joined(ids(3, 32), ids(4, 70)));  // goes on in slot 2; needs 4 pages of 5
  world.step();
  EXPECT_EQ(world.scheduler().counters().n_evicted, 1U);
  EXPECT_THAT(world.content(0), IsEmpty());
  EXPECT_EQ(world.content(1).size(), 32U);
}

TEST(Scheduler, WhatWasKeptComesBackInstead) {
  World world(make_memory(dense(1, 512, 16)), {.step_tokens = 256, .prompt_tokens = 256}, true);
  const std::vector<int32_t> first = ids(1, 100);
  world.submit(1, first);
  world.step();
  world.end(1);
  world.submit(2, ids(2, 50));
  world.step();
  world.end(2);
  world.submit(3, joined(first, ids(3, 10)));
  EXPECT_EQ(world.step().batch.size(), 10u);
  EXPECT_EQ(world.scheduler().view(3).n_cached, 100);
  EXPECT_EQ(world.n_restored(), 1);
  EXPECT_EQ(world.scheduler().counters().n_evicted, 0u);
}

TEST(Scheduler, APieceEndsWhereAWindowedModelsPromptIsKept) {
  World world(make_memory({.classes = {{0, 16}, {32, 16}}, .n_seq_max = 1, .n_ctx = 512}),
              {.step_tokens = 256, .prompt_tokens = 256, .keep_windows = true});
  SchedulerRequest request;
  request.id = 1;
  request.tokens = ids(1, 100);
  request.branches = {70};
  ASSERT_TRUE(world.scheduler().submit(std::move(request), 0).ok());
  SchedulerStep step = world.step();
  EXPECT_EQ(step.batch.size(), 70u);
  EXPECT_THAT(step.keeps, ElementsAre(0));
  step = world.step();
  EXPECT_EQ(step.batch.size(), 30u);
  EXPECT_THAT(step.keeps, ElementsAre(0));
  world.scheduler().append(1, 5);
  EXPECT_THAT(world.step().keeps, IsEmpty());
}

TEST(Scheduler, RecurrentPromptsEndPiecesOnTheGridAndBeforeTheirLastToken) {
  World world(make_memory({.classes = {}, .n_seq_max = 2, .n_ctx = 512}, {true, 8}),
              {.step_tokens = 64, .prompt_tokens = 20, .grid_tokens = 16, .recurrent = true});
  world.submit(1, {5});
  world.step();
  world.scheduler().append(1, 6);
  SchedulerRequest request{.id = 2, .tokens = ids(1, 50), .branches = {24}};
  ASSERT_TRUE(world.scheduler().submit(std::move(request), 1).ok());
  std::vector<int64_t> pieces;
  std::vector<bool> snapshots;
  while (true) {
    const SchedulerStep step = world.step();
    pieces.push_back(tokens_by_slot(step).back().second);
    snapshots.push_back(!step.snapshots.empty());
    if (std::ranges::find(step.outputs, 2) != step.outputs.end()) {
      break;
    }
    world.scheduler().append(1, 6);
  }
  EXPECT_THAT(pieces, ElementsAre(16, 8, 16, 9, 1));
  EXPECT_THAT(snapshots, ElementsAre(false, true, false, true, false));
}

// ---------------------------------------------------------------------------------------------------------------------
// Simulation: requests come, grow, shift, are cancelled and end at random; what must hold always is checked at each
// step.

struct Setup {
  const char* name;
  KvCacheConfig kv;
  RecMemoryConfig rec;
  SchedulerOptions options;
  bool keeps = false;
};

std::ostream& operator<<(std::ostream& out, const Setup& setup) {
  return out << setup.name;
}

class Simulation {
 public:
  Simulation(const Setup& setup, uint32_t seed)
      : options_(setup.options), random_(seed), world_(make_memory(setup.kv, setup.rec), setup.options, setup.keeps) {}

  void run(int64_t n_steps) {
    for (int64_t i = 0; i < n_steps && !::testing::Test::HasFailure(); ++i) {
      // Bursts and lulls.
      const bool busy = (i / 500) % 3 != 2;
      if (chance(busy ? 0.25 : 0.02)) {
        arrive();
      }
      advance();
    }
    // Nothing is lost: all that is left comes to its end.
    for (int64_t i = 0; !live_.empty() && i < 100'000 && !::testing::Test::HasFailure(); ++i) {
      advance();
    }
    EXPECT_TRUE(live_.empty());
    EXPECT_EQ(n_ended_ + n_cancelled_, n_submitted_);
    EXPECT_TRUE(world_.step().empty());
  }

  [[nodiscard]] int64_t n_ended() const { return n_ended_; }
  [[nodiscard]] int64_t n_refused() const { return n_refused_; }
  [[nodiscard]] int64_t n_cached() const { return n_cached_; }
  World& world() { return world_; }

 private:
  struct Live {
    int64_t key = 0;     // of seniority
    int64_t n_left = 0;  // tokens to generate
    int32_t slot = -1;   // its own
    int64_t waited = 0;  // steps with one token missing
  };

  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }
  int64_t draw(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }
  int64_t n_ctx() { return world_.memory().kv().config().n_ctx; }

  void arrive() {
    SchedulerRequest request;
    request.id = ++n_ids_;
    // Beginnings that others share, tails of their own.
    const auto family = static_cast<int32_t>(draw(1, 6));
    request.tokens = joined(ids(family, draw(0, n_ctx() / 2)),
                            ids(static_cast<int32_t>(chance(0.3) ? family : 10 + n_ids_ % 1000), draw(1, n_ctx() / 2)));
    if (!last_.empty() && chance(0.3)) {
      request.tokens = joined(last_, ids(static_cast<int32_t>(n_ids_ % 1000), draw(1, 20)));
      request.tokens.resize(std::min(request.tokens.size(), static_cast<size_t>(n_ctx())));
    }
    request.priority = chance(0.2) ? static_cast<int32_t>(draw(-3, 3)) : 0;
    request.slot = chance(0.1) ? static_cast<int32_t>(draw(0, world_.scheduler().n_slots() - 1)) : -1;
    request.reuse = chance(0.9);
    request.branches = {draw(1, n_ctx())};
    const Live live{world_.now() - request.priority * options_.priority_us, draw(0, 60), request.slot, 0};
    const int64_t n_waiting = world_.scheduler().n_waiting();
    const Status status = world_.scheduler().submit(std::move(request), world_.now());
    if (status.ok()) {
      live_.emplace(n_ids_, live);
      ++n_submitted_;
    } else {
      ASSERT_EQ(status.code(), ErrorCode::kBusy);
      ASSERT_GE(n_waiting, options_.n_queue);
      ++n_refused_;
    }
  }

  void advance() {
    if (!live_.empty() && chance(0.02)) {
      auto victim = live_.begin();
      std::advance(victim, draw(0, static_cast<int64_t>(live_.size()) - 1));
      end(victim->first);
      ++n_cancelled_;
    }
    std::vector<std::pair<int64_t, SchedulerView>> before;
    for (const auto& [id, live] : live_) {
      before.emplace_back(id, world_.scheduler().view(id));
    }
    const SchedulerStep step = world_.step();
    ASSERT_EQ(step.empty(), live_.empty());
    check_progress(before, step);
    for (const int64_t id : step.outputs) {
      grow(id);
    }
  }

  // The eldest request gets on, whatever others want; whoever generates is served in turn.
  void check_progress(const std::vector<std::pair<int64_t, SchedulerView>>& before, const SchedulerStep& step) {
    int64_t eldest = -1;
    for (const auto& [id, live] : live_) {
      if (eldest < 0 || std::pair(live.key, id) < std::pair(live_.at(eldest).key, eldest)) {
        eldest = id;
      }
    }
    std::set<int32_t> served;
    for (const BatchToken& token : step.batch) {
      served.insert(token.seq);
    }
    for (const auto& [id, was] : before) {
      Live& live = live_.at(id);
      const SchedulerView now = world_.scheduler().view(id);
      const bool got_on = now.slot >= 0 && served.contains(now.slot);
      n_cached_ += was.n_cached < 0 && now.n_cached > 0 ? now.n_cached : 0;
      live.waited = got_on || was.slot < 0 || now.slot < 0 ? 0 : live.waited + 1;
      if (was.n_tokens - was.n_held == 1) {
        ASSERT_LE(live.waited, world_.scheduler().n_slots()) << "request " << id;
      }
      if (id == eldest && !got_on) {
        ASSERT_LT(now.slot, 0) << "the eldest request, " << id << ", has a slot and gets nothing";
        const bool own_slot_busy = live.slot >= 0 && world_.scheduler().user(live.slot) >= 0;
        ASSERT_TRUE(own_slot_busy || follows_another(id) || all_busy() || !has_room(id)) << "request " << id;
      }
    }
  }

  bool all_busy() {
    for (int32_t s = 0; s < world_.scheduler().n_slots(); ++s) {
      if (world_.scheduler().user(s) < 0) {
        return false;
      }
    }
    return true;
  }

  // Whether pages are there for certain, even if nothing is shared.
  bool has_room(int64_t id) {
    const auto pages_for = [&](size_t n) { return static_cast<int64_t>((n + kPageTokens - 1) / kPageTokens); };
    const KvCacheConfig& config = world_.memory().kv().config();
    int64_t n_needed = pages_for(world_.scheduler().tokens(id).size());
    for (const auto& [other, live] : live_) {
      if (world_.scheduler().view(other).slot >= 0) {
        const size_t n_tokens = world_.scheduler().tokens(other).size() + kPageTokens;
        n_needed += pages_for(std::min(n_tokens, static_cast<size_t>(config.n_ctx)));
      }
    }
    return config.classes.empty() || n_needed <= config.classes[0].n_pages;
  }

  bool follows_another(int64_t id) {
    const auto tokens = world_.scheduler().tokens(id);
    for (const auto& [other, live] : live_) {
      if (other != id && world_.scheduler().view(other).slot >= 0) {
        const auto theirs = world_.scheduler().tokens(other);
        if (std::ranges::mismatch(tokens, theirs).in1 - tokens.begin() >= kPageTokens) {
          return true;
        }
      }
    }
    return false;
  }

  void grow(int64_t id) {
    Live& live = live_.at(id);
    const auto tokens = world_.scheduler().tokens(id);
    if (live.n_left-- == 0) {
      last_.assign(tokens.begin(), tokens.end());
      end(id);
      ++n_ended_;
    } else if (static_cast<int64_t>(tokens.size()) < n_ctx()) {
      world_.scheduler().append(id, static_cast<int32_t>(draw(0, 100)));
    } else {
      std::vector<int32_t> shifted(tokens.begin(), tokens.begin() + n_ctx() / 4);
      shifted.insert(shifted.end(), tokens.begin() + n_ctx() / 2, tokens.end());
      world_.scheduler().replace(id, std::move(shifted));
    }
  }

  void end(int64_t id) {
    world_.end(id);
    live_.erase(id);
  }

  SchedulerOptions options_;
  std::mt19937 random_;
  World world_;
  std::map<int64_t, Live> live_;
  std::vector<int32_t> last_;  // tokens of the request that ended last
  int64_t n_ids_ = 0;
  int64_t n_submitted_ = 0;
  int64_t n_refused_ = 0;
  int64_t n_cancelled_ = 0;
  int64_t n_ended_ = 0;
  int64_t n_cached_ = 0;
};

class SchedulerSimulation : public ::testing::TestWithParam<Setup> {};

// Steps of each setup; TESSERA_SIMULATION_STEPS=1000000 in the environment for a long run.
int64_t simulation_steps() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int64_t kSteps = 3000;
#else
  constexpr int64_t kSteps = 15000;
#endif
  const char* wanted = std::getenv("TESSERA_SIMULATION_STEPS");
  return wanted != nullptr ? std::atoll(wanted) : kSteps;
}

TEST_P(SchedulerSimulation, LosesStarvesAndExceedsNothing) {
  int64_t n_refused = 0;
  int64_t n_cached = 0;
  int64_t n_restored = 0;
  SchedulerCounters counters;
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(GetParam(), seed);
    simulation.run(simulation_steps() / 3);
    if (HasFailure()) {
      return;
    }
    EXPECT_GT(simulation.n_ended(), 0);
    n_refused += simulation.n_refused();
    n_cached += simulation.n_cached();
    n_restored += simulation.world().n_restored();
    const SchedulerCounters& more = simulation.world().scheduler().counters();
    counters.n_evicted += more.n_evicted;
    counters.n_preempted += more.n_preempted;
    counters.n_forks += more.n_forks;
  }
  // What is rare must have happened, or the test shows little.
  EXPECT_GT(n_refused, 0);
  const bool forgets = GetParam().options.forget_prefixes;
  EXPECT_EQ(n_cached > 0, !forgets);
  EXPECT_EQ(counters.n_forks > 0, !forgets);
  const bool tight = std::string_view(GetParam().name).ends_with("Tight");
  EXPECT_EQ(counters.n_preempted > 0, tight);
  EXPECT_EQ(n_restored > 0, GetParam().keeps);
  if (!GetParam().keeps || tight) {
    EXPECT_EQ(counters.n_evicted > 0, tight);
  }
}

const KvCacheConfig kWindows = {.classes = {{0, 40}, {16, 32}}, .n_seq_max = 5, .n_ctx = 256};

INSTANTIATE_TEST_SUITE_P(
    Setups, SchedulerSimulation,
    ::testing::Values(
        Setup{"Dense",
              dense(6, 200, 6 * 7),
              {},
              {.n_queue = 8, .step_tokens = 32, .prompt_tokens = 12, .priority_us = 50}},
        Setup{"DenseTight",
              dense(6, 200, 12),
              {},
              {.n_queue = 8, .step_tokens = 32, .prompt_tokens = 12, .priority_us = 50}},
        Setup{"MoreSlotsThanStepTokens",
              dense(12, 64, 24),
              {},
              {.n_queue = 8, .step_tokens = 5, .prompt_tokens = 2, .priority_us = 50}},
        Setup{"Window", kWindows, {}, {.n_queue = 8, .step_tokens = 32, .prompt_tokens = 8, .priority_us = 50}},
        Setup{"Recurrent",
              {.classes = {}, .n_seq_max = 4, .n_ctx = 200},
              {true, 8},
              {.n_queue = 8,
               .step_tokens = 40,
               .prompt_tokens = 16,
               .priority_us = 50,
               .grid_tokens = 16,
               .recurrent = true}},
        Setup{"HybridTight",
              dense(4, 200, 10),
              {true, 6},
              {.n_queue = 8,
               .step_tokens = 40,
               .prompt_tokens = 16,
               .priority_us = 50,
               .grid_tokens = 16,
               .recurrent = true}},
        Setup{"DenseKeptTight",
              dense(6, 200, 12),
              {},
              {.n_queue = 8, .step_tokens = 32, .prompt_tokens = 12, .priority_us = 50},
              true},
        Setup{"WindowKept",
              kWindows,
              {},
              {.n_queue = 8, .step_tokens = 32, .prompt_tokens = 8, .priority_us = 50, .keep_windows = true},
              true},
        Setup{"HybridKeptTight",
              dense(4, 200, 10),
              {true, 6},
              {.n_queue = 8,
               .step_tokens = 40,
               .prompt_tokens = 16,
               .priority_us = 50,
               .grid_tokens = 16,
               .recurrent = true},
              true},
        Setup{"Invariant",
              dense(4, 200, 4 * 7),
              {true, 6},
              {.n_queue = 8,
               .step_tokens = 40,
               .prompt_tokens = 16,
               .priority_us = 50,
               .grid_tokens = 16,
               .recurrent = true,
               .forget_prefixes = true}}),
    [](const auto& setup) { return std::string(setup.param.name); });

}  // namespace
}  // namespace tessera

#include "memory/sequence_memory.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <set>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SequenceMemory make_memory(KvCacheConfig kv, RecMemoryConfig rec) {
  Result<SequenceMemory> memory = SequenceMemory::create(std::move(kv), rec);
  EXPECT_TRUE(memory.ok()) << memory.status().message();
  return std::move(memory).value();
}

std::vector<KvToken> tokens_of(int32_t seq, int64_t n) {
  return std::vector<KvToken>(static_cast<size_t>(n), {seq});
}

TEST(SequenceMemory, OrdersTheRowsOfEachSequence) {
  SequenceMemory memory = make_memory({.classes = {{0, 8}}, .n_seq_max = 4, .n_ctx = 100}, {.present = true});
  MemoryBatch batch;
  ASSERT_TRUE(memory.prepare(tokens_of(3, 5), batch).ok());
  const std::vector<KvToken> tokens = {{1}, {3}, {1}, {3}, {3}};
  ASSERT_TRUE(memory.prepare(tokens, batch).ok());
  EXPECT_THAT(batch.rec_rows, ElementsAre(0, 2, 1, 3, 4));
  ASSERT_EQ(batch.rec_runs.size(), 2U);
  EXPECT_EQ(batch.rec_runs[0].slot, 1);
  EXPECT_EQ(batch.rec_runs[0].position, 0);
  EXPECT_EQ(batch.rec_runs[1].slot, 3);
  EXPECT_EQ(batch.rec_runs[1].row_begin, 2);
  EXPECT_EQ(batch.rec_runs[1].n_rows, 3);
  EXPECT_EQ(batch.rec_runs[1].position, 5);
}

TEST(SequenceMemory, WithoutRecurrentLayersIsTheCacheAlone) {
  SequenceMemory memory = make_memory({.classes = {{0, 8}}, .n_seq_max = 2, .n_ctx = 100}, {.n_snapshots = 4});
  MemoryBatch batch;
  std::vector<RecMove> moves;
  ASSERT_TRUE(memory.prepare(tokens_of(0, 40), batch).ok());
  EXPECT_THAT(batch.rec_rows, IsEmpty());
  ASSERT_TRUE(memory.snapshot(0, moves).ok());
  EXPECT_EQ(memory.rewind_length(0, 17), 17);
  ASSERT_TRUE(memory.truncate(0, 17, moves).ok());
  ASSERT_TRUE(memory.fork(0, 1, 9, moves).ok());
  EXPECT_THAT(moves, IsEmpty());
}

TEST(SequenceMemory, RestoresTheLastSnapshotsThatFit) {
  SequenceMemory memory =
      make_memory({.classes = {{0, 8}}, .n_seq_max = 2, .n_ctx = 100}, {.present = true, .n_snapshots = 2});
  MemoryBatch batch;
  std::vector<RecMove> moves;
  ASSERT_TRUE(memory.prepare(tokens_of(0, 10), batch).ok());
  ASSERT_TRUE(memory.snapshot(0, moves).ok());
  ASSERT_TRUE(memory.prepare(tokens_of(1, 10), batch).ok());
  ASSERT_TRUE(memory.snapshot(1, moves).ok());
  const int64_t positions[] = {5, 7, 30};
  const int64_t first[] = {0};
  EXPECT_FALSE(memory.restore(1, 101, first, positions).ok());
  EXPECT_THAT(memory.snapshot_positions(1), ElementsAre(10));
  ASSERT_TRUE(memory.restore(1, 40, first, positions).ok());
  EXPECT_EQ(memory.length(1), 40);
  EXPECT_THAT(memory.snapshot_positions(1), ElementsAre(7, 30));
  EXPECT_THAT(memory.snapshot_positions(0), IsEmpty());  // that of sequence 0 made room
  EXPECT_EQ(memory.rewind_length(1, 29), 7);
}

TEST(SequenceMemory, GoesBackToSnapshotsOnly) {
  SequenceMemory memory =
      make_memory({.classes = {{0, 8}}, .n_seq_max = 2, .n_ctx = 100}, {.present = true, .n_snapshots = 2});
  MemoryBatch batch;
  std::vector<RecMove> moves;
  for (int i = 0; i < 3; ++i) {  // at 10, 20, 30; the first has to make room for the third
    ASSERT_TRUE(memory.prepare(tokens_of(0, 10), batch).ok());
    ASSERT_TRUE(memory.snapshot(0, moves).ok());
    ASSERT_TRUE(memory.snapshot(0, moves).ok());  // is there already
  }
  EXPECT_EQ(moves.size(), 3U);
  EXPECT_THAT(memory.snapshot_positions(0), ElementsAre(20, 30));
  ASSERT_TRUE(memory.prepare(tokens_of(0, 5), batch).ok());
  EXPECT_EQ(memory.rewind_length(0, 99), 35);
  EXPECT_EQ(memory.rewind_length(0, 34), 30);
  EXPECT_EQ(memory.rewind_length(0, 29), 20);
  EXPECT_EQ(memory.rewind_length(0, 19), 0);
  EXPECT_EQ(memory.rewind_length(7, 19), 0);

  moves.clear();
  const Status status = memory.truncate(0, 29, moves);
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("it can go back to 20"));
  EXPECT_EQ(memory.truncate(0, 36, moves).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(memory.truncate(0, -1, moves).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(memory.truncate(2, 0, moves).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(memory.length(0), 35);
  EXPECT_THAT(moves, IsEmpty());

  ASSERT_TRUE(memory.fork(0, 1, 20, moves).ok());
  ASSERT_TRUE(memory.truncate(0, 30, moves).ok());
  EXPECT_THAT(moves, ElementsAre(RecMove{RecMove::Kind::kRestore, 1, 1}, RecMove{RecMove::Kind::kRestore, 0, 0}));
  EXPECT_THAT(memory.snapshot_positions(1), ElementsAre(20));
  ASSERT_TRUE(memory.truncate(0, 0, moves).ok());
  EXPECT_EQ(memory.snapshots_free(), 1);  // the other is still sequence 1's
}

// Random operations against sequences of plain token lists. The simulated slots and snapshots hold the list that a
// state has seen: whatever happens, a sequence's slot must hold exactly its own.
TEST(SequenceMemory, SlotsAlwaysHoldWhatTheirSequenceSaw) {
  using List = std::vector<int>;
  constexpr int kSeqs = 4;
  constexpr int kPlaces = 5;
  for (const uint32_t seed : {1U, 2U, 3U, 4U}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random); };
    // Few pages, so that some batches do not fit; a window class in every second round.
    KvCacheConfig config{.classes = {{0, 7}}, .n_seq_max = kSeqs, .n_ctx = 120};
    if (seed % 2 == 0) {
      config.classes.push_back({40, 7});
    }
    SequenceMemory memory = make_memory(config, {.present = true, .n_snapshots = kPlaces});
    std::vector<List> lists(kSeqs);
    std::vector<List> slots(kSeqs);
    std::vector<List> places(kPlaces);
    int next_token = 0;
    int n_refused = 0;
    int n_rewound = 0;
    for (int step = 0; step < 3000; ++step) {
      const auto seq = static_cast<int32_t>(below(kSeqs));
      const int64_t length = memory.length(seq);
      std::vector<RecMove> moves;
      std::vector<int64_t> lengths;
      std::vector<std::vector<int64_t>> positions;
      for (int32_t s = 0; s < kSeqs; ++s) {
        lengths.push_back(memory.length(s));
        positions.push_back(memory.snapshot_positions(s));
      }
      Status status;
      switch (below(8)) {
        case 0: {
          const int64_t to = memory.rewind_length(seq, below(length + 1));
          status = memory.truncate(seq, to, moves);
          EXPECT_TRUE(status.ok()) << status.message();
          n_rewound += to > 0 && to < length ? 1 : 0;
          lists[static_cast<size_t>(seq)].resize(static_cast<size_t>(to));
          break;
        }
        case 1: {
          const int64_t to = below(length + 2);
          status = memory.truncate(seq, to, moves);
          if (status.ok()) {
            lists[static_cast<size_t>(seq)].resize(static_cast<size_t>(to));
          }
          break;
        }
        case 2: {
          const auto target = static_cast<int32_t>(below(kSeqs));
          const int64_t to = below(2) == 0 ? length : memory.rewind_length(seq, below(length + 1));
          status = memory.fork(seq, target, to, moves);
          if (status.ok()) {
            lists[static_cast<size_t>(target)] = lists[static_cast<size_t>(seq)];
            lists[static_cast<size_t>(target)].resize(static_cast<size_t>(to));
          }
          break;
        }
        case 3: status = memory.snapshot(seq, moves); break;
        case 4:
          if (below(20) == 0) {
            memory.clear();
            for (List& list : lists) {
              list.clear();
            }
          }
          break;
        default: {
          std::vector<KvToken> tokens;
          for (int64_t i = below(30); i >= 0; --i) {
            tokens.push_back({below(4) == 0 ? static_cast<int32_t>(below(kSeqs)) : seq});
          }
          MemoryBatch batch;
          status = memory.prepare(tokens, batch);
          if (status.ok()) {
            std::vector<int> ids;
            for (const KvToken& token : tokens) {
              ids.push_back(next_token++);
              lists[static_cast<size_t>(token.seq)].push_back(ids.back());
            }
            for (const RecRun& run : batch.rec_runs) {
              List& slot = slots[static_cast<size_t>(run.slot)];
              if (run.position == 0) {
                slot.clear();
              }
              for (int32_t i = 0; i < run.n_rows; ++i) {
                slot.push_back(ids[static_cast<size_t>(batch.rec_rows[static_cast<size_t>(run.row_begin + i)])]);
              }
            }
            memory.trim_windows();
          }
          break;
        }
      }
      for (const RecMove& move : moves) {
        const auto from = static_cast<size_t>(move.from);
        const auto to = static_cast<size_t>(move.to);
        switch (move.kind) {
          case RecMove::Kind::kCopySlot: slots[to] = slots[from]; break;
          case RecMove::Kind::kSave: places[to] = slots[from]; break;
          case RecMove::Kind::kRestore: slots[to] = places[from]; break;
        }
      }
      if (!status.ok()) {
        ++n_refused;
        EXPECT_THAT(moves, IsEmpty());
        for (int32_t s = 0; s < kSeqs; ++s) {
          ASSERT_EQ(memory.length(s), lengths[static_cast<size_t>(s)]);
          ASSERT_EQ(memory.snapshot_positions(s), positions[static_cast<size_t>(s)]);
        }
      }
      std::set<int64_t> used;
      for (int32_t s = 0; s < kSeqs; ++s) {
        const List& list = lists[static_cast<size_t>(s)];
        ASSERT_EQ(memory.length(s), static_cast<int64_t>(list.size()));
        if (!list.empty()) {
          ASSERT_EQ(slots[static_cast<size_t>(s)], list) << "sequence " << s << " step " << step;
        }
        const std::vector<int64_t> kept = memory.snapshot_positions(s);
        ASSERT_TRUE(std::ranges::is_sorted(kept));
        ASSERT_TRUE(kept.empty() || kept.back() <= memory.length(s));
      }
      ASSERT_GE(memory.snapshots_free(), 0);
    }
    memory.clear();
    EXPECT_EQ(memory.snapshots_free(), kPlaces);  // none is lost
    EXPECT_EQ(memory.kv().pages_free(0), 7);
    EXPECT_GT(n_refused, 100);
    EXPECT_GT(n_rewound, 30);
  }
}

}  // namespace
}  // namespace tessera

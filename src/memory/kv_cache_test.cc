#include "memory/kv_cache.h"

#include <algorithm>
#include <cstdio>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

KvCache make_cache(KvCacheConfig config) {
  Result<KvCache> cache = KvCache::create(std::move(config));
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return std::move(cache).value();
}

std::vector<KvToken> tokens_of(int32_t seq, int64_t n) {
  return std::vector<KvToken>(static_cast<size_t>(n), {seq});
}

TEST(KvCache, RefusesSenselessConfigs) {
  const KvCacheConfig good{.classes = {{0, 4}}, .n_seq_max = 2, .n_ctx = 64};
  EXPECT_TRUE(KvCache::create(good).ok());
  KvCacheConfig bad = good;
  bad.n_seq_max = 0;
  EXPECT_EQ(KvCache::create(bad).status().code(), ErrorCode::kInvalidArgument);
  bad = good;
  bad.n_ctx = 0;
  EXPECT_EQ(KvCache::create(bad).status().code(), ErrorCode::kInvalidArgument);
  bad = good;
  bad.n_ctx = int64_t{1} << 31;
  EXPECT_EQ(KvCache::create(bad).status().code(), ErrorCode::kInvalidArgument);
  bad = good;
  bad.classes[0].n_pages = 0;
  EXPECT_EQ(KvCache::create(bad).status().code(), ErrorCode::kInvalidArgument);
  bad.classes[0].n_pages = (int64_t{1} << 26) + 1;  // its last slot would not be an int32
  EXPECT_EQ(KvCache::create(bad).status().code(), ErrorCode::kInvalidArgument);
  bad = good;
  bad.classes[0].window = -1;
  EXPECT_EQ(KvCache::create(bad).status().code(), ErrorCode::kInvalidArgument);
  bad = good;
  bad.quota_pages = -1;
  EXPECT_EQ(KvCache::create(bad).status().code(), ErrorCode::kInvalidArgument);
}

TEST(KvCache, MixesSequencesInOneBatch) {
  KvCache cache = make_cache({.classes = {{0, 8}}, .n_seq_max = 4, .n_ctx = 100});
  ASSERT_TRUE(cache.prepare(tokens_of(3, 31)).ok());
  const std::vector<KvToken> tokens = {{1}, {3}, {1}, {3}, {3}};
  const Result<KvBatch> batch = cache.prepare(tokens);
  ASSERT_TRUE(batch.ok());
  EXPECT_THAT(batch->positions, ElementsAre(0, 31, 1, 32, 33));
  EXPECT_THAT(batch->row_seqs, ElementsAre(1, 3));
  EXPECT_THAT(batch->seq_rows, ElementsAre(0, 1, 0, 1, 1));
  EXPECT_THAT(batch->copies, IsEmpty());
  ASSERT_EQ(batch->classes.size(), 1U);
  const KvBatchClass& c = batch->classes[0];
  EXPECT_EQ(c.row_pages, 2);
  const int32_t a = cache.pages(0, 1)[0];
  const int32_t b0 = cache.pages(0, 3)[0];
  const int32_t b1 = cache.pages(0, 3)[1];
  EXPECT_THAT(c.page_table, ElementsAre(a, -1, b0, b1));
  EXPECT_THAT(c.slots, ElementsAre(a * 32, b0 * 32 + 31, a * 32 + 1, b1 * 32, b1 * 32 + 1));
  EXPECT_EQ(cache.pages_used(0), 3);
}

TEST(KvCache, AnEmptyBatchAndAModelWithoutAttentionAreFine) {
  KvCache cache = make_cache({.classes = {}, .n_seq_max = 1, .n_ctx = 10});
  ASSERT_TRUE(cache.prepare({}).ok());
  const Result<KvBatch> batch = cache.prepare(tokens_of(0, 3));
  ASSERT_TRUE(batch.ok());
  EXPECT_THAT(batch->positions, ElementsAre(0, 1, 2));
  EXPECT_THAT(batch->classes, IsEmpty());
  EXPECT_EQ(cache.length(0), 3);
}

TEST(KvCache, SaysWhatWasNeededAndWhatWasFree) {
  KvCache cache = make_cache({.classes = {{0, 3}, {8, 4}}, .n_seq_max = 3, .n_ctx = 100, .quota_pages = 2});
  ASSERT_TRUE(cache.prepare(tokens_of(0, 40)).ok());  // 2 pages of 3

  Status status = cache.prepare(tokens_of(1, 33)).status();
  EXPECT_EQ(status.code(), ErrorCode::kCacheFull);
  EXPECT_EQ(status.message(), "KV pages of class 0 (window 0) needed 2, free 1 of 3");

  status = cache.prepare(tokens_of(0, 25)).status();
  EXPECT_EQ(status.code(), ErrorCode::kCacheFull);
  EXPECT_EQ(status.message(), "sequence 0 needed 1 more KV pages of class 0, free 0 of its quota of 2");

  status = cache.prepare(tokens_of(0, 61)).status();
  EXPECT_EQ(status.code(), ErrorCode::kCacheFull);
  EXPECT_EQ(status.message(), "sequence 0 needed 61 positions, free 60 of a context of 100");

  for (const int32_t seq : {-1, 3}) {
    const std::vector<KvToken> tokens = {{1}, {seq}};
    status = cache.prepare(tokens).status();
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("the cache has 0 to 2"));
  }
  EXPECT_EQ(cache.length(0), 40);
  EXPECT_EQ(cache.length(1), 0);
  EXPECT_EQ(cache.pages_used(0), 2);
  EXPECT_EQ(cache.pages_used(1), 2);
  EXPECT_TRUE(cache.prepare(tokens_of(0, 24)).ok());  // what is there can still be used
}

TEST(KvCache, AFailureInALaterClassGivesNothingToAnEarlierOne) {
  KvCache cache = make_cache({.classes = {{0, 8}, {8, 1}}, .n_seq_max = 2, .n_ctx = 100});
  ASSERT_TRUE(cache.prepare(tokens_of(0, 10)).ok());
  ASSERT_TRUE(cache.fork(0, 1, 10).ok());
  // Class 0 has room for the copy of the shared partial page, class 1 has not.
  const Status status = cache.prepare(tokens_of(0, 1)).status();
  EXPECT_EQ(status.message(), "KV pages of class 1 (window 8) needed 1, free 0 of 1");
  EXPECT_EQ(cache.page_refs(0, cache.pages(0, 0)[0]), 2);
  EXPECT_EQ(cache.pages_used(0), 1);
  EXPECT_EQ(cache.length(0), 10);
}

TEST(KvCache, CopiesOnlyASharedPartialLastPage) {
  KvCache cache = make_cache({.classes = {{0, 8}}, .n_seq_max = 3, .n_ctx = 200});
  ASSERT_TRUE(cache.prepare(tokens_of(0, 40)).ok());
  ASSERT_TRUE(cache.fork(0, 1, 40).ok());
  ASSERT_TRUE(cache.fork(0, 2, 32).ok());
  EXPECT_EQ(cache.pages_used(0), 2);
  const int32_t whole = cache.pages(0, 0)[0];
  const int32_t partial = cache.pages(0, 0)[1];
  EXPECT_EQ(cache.page_refs(0, whole), 3);

  // Both sharers write in one batch: the first leaves, the last one keeps the original.
  const std::vector<KvToken> tokens = {{0}, {1}, {2}};
  EXPECT_EQ(cache.pages_needed(0, std::vector<KvGrowth>{{0, 1}}), 1);
  EXPECT_EQ(cache.pages_needed(0, std::vector<KvGrowth>{{0, 1}, {1, 1}}), 1);
  EXPECT_EQ(cache.pages_needed(0, std::vector<KvGrowth>{{0, 0}, {1, 25}}), 2);  // a copy and a page more
  EXPECT_EQ(cache.pages_needed(0, std::vector<KvGrowth>{{0, 1}, {1, 1}, {2, 1}}), 2);
  const Result<KvBatch> batch = cache.prepare(tokens);
  ASSERT_TRUE(batch.ok());
  ASSERT_EQ(batch->copies.size(), 1U);
  EXPECT_EQ(batch->copies[0].klass, 0);
  EXPECT_EQ(batch->copies[0].from, partial);
  EXPECT_EQ(batch->copies[0].to, cache.pages(0, 0)[1]);
  EXPECT_EQ(batch->copies[0].n_tokens, 8);
  EXPECT_EQ(cache.pages(0, 1)[1], partial);
  EXPECT_NE(cache.pages(0, 0)[1], partial);
  EXPECT_EQ(cache.page_refs(0, whole), 3);  // whole pages stay shared
  EXPECT_EQ(cache.pages_used(0), 4);
}

TEST(KvCache, RefusesRewindsThatMakeNoSense) {
  KvCache cache = make_cache({.classes = {{0, 16}, {8, 16}}, .n_seq_max = 2, .n_ctx = 500});
  ASSERT_TRUE(cache.prepare(tokens_of(0, 200)).ok());
  EXPECT_EQ(cache.truncate(0, 201).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(cache.truncate(0, -1).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(cache.truncate(2, 0).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(cache.fork(0, 0, 1).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(cache.fork(0, 2, 1).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(cache.fork(-1, 1, 0).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(cache.fork(0, 1, 201).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(cache.length(2), 0);
  EXPECT_EQ(cache.min_length(-1), 0);

  cache.trim_windows();
  EXPECT_EQ(cache.pages_used(1), 1);  // 200 - 8 = 192 = 6 pages
  EXPECT_EQ(cache.pages_used(0), 7);
  EXPECT_EQ(cache.min_length(0), 199);
  const Status status = cache.truncate(0, 198);
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("no fewer than 199"));
  EXPECT_EQ(cache.fork(0, 1, 198).code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(cache.fork(0, 1, 199).ok());
  EXPECT_EQ(cache.min_length(1), 199);
  EXPECT_TRUE(cache.truncate(0, 199).ok());
  EXPECT_TRUE(cache.truncate(0, 0).ok());
  EXPECT_EQ(cache.min_length(0), 0);
  EXPECT_TRUE(cache.prepare(tokens_of(0, 50)).ok());  // from the start again
}

TEST(KvCache, ForkDropsWhatTheTargetHeldEvenWhenItIsNeededForRoom) {
  KvCache cache = make_cache({.classes = {{0, 4}}, .n_seq_max = 2, .n_ctx = 128});
  ASSERT_TRUE(cache.prepare(tokens_of(0, 40)).ok());
  ASSERT_TRUE(cache.prepare(tokens_of(1, 64)).ok());
  ASSERT_EQ(cache.pages_free(0), 0);
  ASSERT_TRUE(cache.fork(0, 1, 40).ok());
  EXPECT_EQ(cache.pages_used(0), 2);
  ASSERT_TRUE(cache.fork(0, 1, 0).ok());
  EXPECT_EQ(cache.length(1), 0);
  EXPECT_EQ(cache.page_refs(0, cache.pages(0, 0)[0]), 1);
}

TEST(KvCache, RestoresIntoPagesOfItsOwnOrLeavesAllAsItWas) {
  KvCache cache = make_cache({.classes = {{0, 4}, {40, 4}}, .n_seq_max = 2, .n_ctx = 128});
  ASSERT_TRUE(cache.prepare(tokens_of(0, 64)).ok());
  ASSERT_TRUE(cache.fork(0, 1, 64).ok());
  const std::vector<int64_t> first = {0, 32};
  EXPECT_EQ(cache.restore(1, 128, first).code(), ErrorCode::kCacheFull);  // sequence 0 keeps what both shared
  EXPECT_EQ(cache.length(1), 64);
  EXPECT_EQ(cache.page_refs(0, cache.pages(0, 0)[0]), 2);
  ASSERT_TRUE(cache.truncate(0, 0).ok());
  ASSERT_TRUE(cache.restore(1, 128, first).ok());
  EXPECT_EQ(cache.length(1), 128);
  EXPECT_EQ(cache.pages_used(0), 4);
  EXPECT_EQ(cache.pages_used(1), 3);
  EXPECT_EQ(cache.pages(1, 1)[0], -1);
  EXPECT_EQ(cache.first_position(0, 1), 0);
  EXPECT_EQ(cache.first_position(1, 1), 32);
  EXPECT_EQ(cache.min_length(1), 32 + 40 - 1);
  const auto refused = [&](int32_t seq, int64_t length, int64_t first_full, int64_t first_window) {
    const std::vector<int64_t> where = {first_full, first_window};
    return cache.restore(seq, length, where).code();
  };
  EXPECT_EQ(refused(2, 10, 0, 0), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused(1, 129, 0, 0), ErrorCode::kCacheFull);
  EXPECT_EQ(refused(1, 128, 32, 0), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused(1, 128, 0, 31), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused(1, 128, 0, 96), ErrorCode::kInvalidArgument);  // position 128 sees 89 and on
  EXPECT_EQ(refused(1, 70, 0, 32), ErrorCode::kInvalidArgument);   // position 70 sees 31 and on
  EXPECT_EQ(refused(1, 71, 0, 32), ErrorCode::kOk);
  EXPECT_EQ(cache.length(1), 71);
}

TEST(KvCache, AWindowOfOneKeepsOnePage) {
  KvCache cache = make_cache({.classes = {{1, 4}}, .n_seq_max = 1, .n_ctx = 1000});
  KvBatch batch;
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(cache.prepare(tokens_of(0, 1), batch).ok()) << i;
    cache.trim_windows();
    ASSERT_EQ(cache.pages_used(0), 1) << i;
  }
}

// Random operations against a model that knows, for each sequence, which token stands at which position, and for each
// place of each page, which token was last written there.
class ModelRun {
 public:
  explicit ModelRun(uint64_t seed) : random_(seed), cache_(make_cache(draw_config())) {
    const KvCacheConfig& config = cache_.config();
    sequences_.resize(static_cast<size_t>(config.n_seq_max));
    for (const KvClassConfig& klass : config.classes) {
      places_.emplace_back(static_cast<size_t>(klass.n_pages * kPageTokens), kNothing);
    }
  }

  void run(int n_steps) {
    for (int step = 0; step < n_steps && !::testing::Test::HasFailure(); ++step) {
      switch (draw(0, 15)) {
        case 0: do_truncate(); break;
        case 1:
        case 2: do_fork(); break;
        case 3: draw(0, 9) == 0 ? do_clear() : do_truncate(); break;
        case 4:
        case 5:
        case 6: do_trim(); break;
        default: do_prepare();
      }
      check_everything();
    }
  }

  int n_prepared = 0, n_full = 0, n_copies = 0, n_gone = 0, n_refused = 0;  // what the runs have covered

 private:
  static constexpr int64_t kNothing = -1;

  int64_t draw(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  int32_t draw_seq() { return static_cast<int32_t>(draw(0, cache_.config().n_seq_max - 1)); }

  KvCacheConfig draw_config() {
    KvCacheConfig config;
    const int64_t n_classes = draw(1, 3);
    for (int64_t i = 0; i < n_classes; ++i) {
      config.classes.push_back({draw(0, 1) == 0 ? 0 : draw(2, 70), draw(2, 14)});
    }
    config.n_seq_max = static_cast<int32_t>(draw(1, 5));
    config.n_ctx = draw(20, 200);
    config.quota_pages = draw(0, 3) == 0 ? draw(1, 5) : 0;
    return config;
  }

  int64_t n_held(size_t klass, int32_t seq) const {
    int64_t n = 0;
    for (const int32_t page : cache_.pages(static_cast<int32_t>(klass), seq)) {
      n += page >= 0 ? 1 : 0;
    }
    return n;
  }

  // Whether a batch that adds counts[seq] tokens to each sequence has room, counted from the public state alone.
  bool has_room(const std::vector<int64_t>& counts) const {
    const KvCacheConfig& config = cache_.config();
    for (size_t klass = 0; klass < config.classes.size(); ++klass) {
      int64_t needed = 0;
      std::map<int32_t, int32_t> writers;  // of partial pages
      for (int32_t seq = 0; seq < config.n_seq_max; ++seq) {
        const auto length = static_cast<int64_t>(sequences_[static_cast<size_t>(seq)].size());
        const int64_t n = counts[static_cast<size_t>(seq)];
        if (n == 0) {
          continue;
        }
        const int64_t n_new = (length + n + 31) / 32 - (length + 31) / 32;
        if (length + n > config.n_ctx || (config.quota_pages > 0 && n_held(klass, seq) + n_new > config.quota_pages)) {
          return false;
        }
        needed += n_new;
        if (length % 32 != 0) {
          ++writers[cache_.pages(static_cast<int32_t>(klass), seq)[static_cast<size_t>(length / 32)]];
        }
      }
      for (const auto& [page, n_writers] : writers) {
        needed += std::min(n_writers, cache_.page_refs(static_cast<int32_t>(klass), page) - 1);
      }
      if (needed > cache_.pages_free(static_cast<int32_t>(klass))) {
        return false;
      }
    }
    return true;
  }

  // Everything one can see of the book.
  std::vector<std::vector<int32_t>> snapshot() const {
    std::vector<std::vector<int32_t>> all;
    for (size_t klass = 0; klass < places_.size(); ++klass) {
      for (int32_t seq = 0; seq < cache_.config().n_seq_max; ++seq) {
        const auto pages = cache_.pages(static_cast<int32_t>(klass), seq);
        all.emplace_back(pages.begin(), pages.end());
        all.push_back({static_cast<int32_t>(cache_.length(seq)), static_cast<int32_t>(cache_.min_length(seq))});
      }
      std::vector<int32_t> refs = {static_cast<int32_t>(cache_.pages_free(static_cast<int32_t>(klass)))};
      for (int32_t page = 0; page < cache_.config().classes[klass].n_pages; ++page) {
        refs.push_back(cache_.page_refs(static_cast<int32_t>(klass), page));
      }
      all.push_back(refs);
    }
    return all;
  }

  void do_prepare() {
    std::vector<KvToken> tokens;
    std::vector<int64_t> counts(sequences_.size(), 0);
    const int64_t n_parts = draw(0, 4);
    for (int64_t part = 0; part < n_parts; ++part) {  // sequences may come back within the batch
      const KvToken token{draw_seq()};
      const int64_t n = draw(0, 2) == 0 ? draw(1, 50) : draw(1, 3);
      tokens.insert(tokens.end(), static_cast<size_t>(n), token);
      counts[static_cast<size_t>(token.seq)] += n;
    }
    const bool bad_seq = draw(0, 30) == 0;
    if (bad_seq) {
      tokens.push_back({draw(0, 1) == 0 ? -1 : cache_.config().n_seq_max});
    }
    const auto before = snapshot();
    const bool expected = !bad_seq && has_room(counts);
    const Status status = cache_.prepare(tokens, batch_);
    ASSERT_EQ(status.ok(), expected) << status.message();
    if (!expected) {
      EXPECT_EQ(status.code(), bad_seq ? ErrorCode::kInvalidArgument : ErrorCode::kCacheFull);
      EXPECT_EQ(snapshot(), before) << "a failed prepare changed something";
      ++n_full;
      return;
    }
    ++n_prepared;
    apply_copies();
    write_tokens(tokens);
    check_batch(tokens.size());
  }

  void apply_copies() {
    std::set<std::pair<int32_t, int32_t>> targets;
    for (const KvPageCopy& copy : batch_.copies) {
      EXPECT_TRUE(targets.insert({copy.klass, copy.to}).second) << "two copies into one page";
      EXPECT_GT(copy.n_tokens, 0);
      EXPECT_LT(copy.n_tokens, kPageTokens) << "a whole page was copied";
      std::vector<int64_t>& places = places_[static_cast<size_t>(copy.klass)];
      for (int64_t i = 0; i < kPageTokens; ++i) {
        places[static_cast<size_t>(copy.to * kPageTokens + i)] =
            i < copy.n_tokens ? places[static_cast<size_t>(copy.from * kPageTokens + i)] : kNothing;
      }
      ++n_copies;
    }
    for (const KvPageCopy& copy : batch_.copies) {
      EXPECT_EQ(targets.count({copy.klass, copy.from}), 0U) << "a copy reads what another writes";
    }
  }

  void write_tokens(std::span<const KvToken> tokens) {
    ASSERT_EQ(batch_.positions.size(), tokens.size());
    ASSERT_EQ(batch_.seq_rows.size(), tokens.size());
    ASSERT_EQ(batch_.classes.size(), places_.size());
    for (size_t t = 0; t < tokens.size(); ++t) {
      std::vector<int64_t>& sequence = sequences_[static_cast<size_t>(tokens[t].seq)];
      ASSERT_EQ(batch_.positions[t], static_cast<int64_t>(sequence.size()));
      ASSERT_EQ(batch_.row_seqs.at(static_cast<size_t>(batch_.seq_rows[t])), tokens[t].seq);
      sequence.push_back(next_token_);
      for (size_t klass = 0; klass < places_.size(); ++klass) {
        const int32_t slot = batch_.classes[klass].slots.at(t);
        EXPECT_EQ(cache_.page_refs(static_cast<int32_t>(klass), slot / 32), 1) << "wrote into a shared page";
        places_[klass].at(static_cast<size_t>(slot)) = next_token_;
      }
      ++next_token_;
    }
  }

  // Each token of the batch finds everything it may see through the batch's own tables.
  void check_batch(size_t n_tokens) {
    for (size_t klass = 0; klass < places_.size(); ++klass) {
      const KvBatchClass& c = batch_.classes[klass];
      ASSERT_EQ(c.slots.size(), n_tokens);
      ASSERT_EQ(c.page_table.size(), batch_.row_seqs.size() * static_cast<size_t>(c.row_pages));
      for (size_t i = 0; i < c.page_table.size(); ++i) {
        const auto pages =
            cache_.pages(static_cast<int32_t>(klass), batch_.row_seqs[i / static_cast<size_t>(c.row_pages)]);
        const size_t index = i % static_cast<size_t>(c.row_pages);
        ASSERT_EQ(c.page_table[i], index < pages.size() ? pages[index] : -1);
      }
      const int64_t window = cache_.config().classes[klass].window;
      for (size_t t = 0; t < n_tokens; ++t) {
        const int64_t row = batch_.seq_rows[t];
        const int64_t position = batch_.positions[t];
        const auto& sequence = sequences_[static_cast<size_t>(batch_.row_seqs[static_cast<size_t>(row)])];
        for (int64_t j = window == 0 ? 0 : std::max<int64_t>(0, position - window + 1); j <= position; ++j) {
          const int32_t page = c.page_table.at(static_cast<size_t>(row * c.row_pages + j / 32));
          ASSERT_GE(page, 0) << "position " << j << " is gone for " << position;
          ASSERT_EQ(places_[klass].at(static_cast<size_t>(page * 32 + j % 32)), sequence[static_cast<size_t>(j)]);
        }
      }
    }
  }

  int64_t expected_min_length(int32_t seq) const {
    int64_t least = 0;
    for (size_t klass = 0; klass < places_.size(); ++klass) {
      const auto pages = cache_.pages(static_cast<int32_t>(klass), seq);
      int64_t gone = 0;
      while (gone < static_cast<int64_t>(pages.size()) && pages[static_cast<size_t>(gone)] < 0) {
        ++gone;
      }
      if (gone > 0) {  // the next position must not look into the gone pages
        least = std::max(least, gone * 32 + cache_.config().classes[klass].window - 1);
      }
    }
    return least;
  }

  void do_truncate() {
    const int32_t seq = draw_seq();
    std::vector<int64_t>& sequence = sequences_[static_cast<size_t>(seq)];
    const auto length = static_cast<int64_t>(sequence.size());
    const int64_t new_length = draw(0, 4) == 0 ? 0 : draw(std::max<int64_t>(0, length - 40), length + 1);
    const int64_t least = expected_min_length(seq);
    EXPECT_EQ(cache_.min_length(seq), least);
    const auto before = snapshot();
    const Status status = cache_.truncate(seq, new_length);
    if (new_length > length || (new_length > 0 && new_length < least)) {
      EXPECT_EQ(status.code(), new_length > length ? ErrorCode::kInvalidArgument : ErrorCode::kUnsupported);
      EXPECT_EQ(snapshot(), before);
      ++n_refused;
      return;
    }
    ASSERT_TRUE(status.ok()) << status.message();
    sequence.resize(static_cast<size_t>(new_length));
  }

  void do_fork() {
    const int32_t from = draw_seq();
    const int32_t to = draw_seq();
    const std::vector<int64_t>& source = sequences_[static_cast<size_t>(from)];
    const auto length = static_cast<int64_t>(source.size());
    const int64_t kept = draw(0, 1) == 0 ? length : draw(0, length);
    const auto before = snapshot();
    const int64_t least = expected_min_length(from);
    const Status status = cache_.fork(from, to, kept);
    if (from == to || (kept > 0 && kept < least)) {
      EXPECT_EQ(status.code(), from == to ? ErrorCode::kInvalidArgument : ErrorCode::kUnsupported);
      EXPECT_EQ(snapshot(), before);
      ++n_refused;
      return;
    }
    ASSERT_TRUE(status.ok()) << status.message();
    sequences_[static_cast<size_t>(to)].assign(source.begin(), source.begin() + kept);
  }

  void do_trim() {
    std::vector<std::vector<int64_t>> held;
    for (size_t klass = 0; klass < places_.size(); ++klass) {
      auto& row = held.emplace_back();
      for (int32_t seq = 0; seq < cache_.config().n_seq_max; ++seq) {
        row.push_back(n_held(klass, seq));
      }
    }
    cache_.trim_windows();
    for (size_t klass = 0; klass < places_.size(); ++klass) {
      const int64_t window = cache_.config().classes[klass].window;
      for (int32_t seq = 0; seq < cache_.config().n_seq_max; ++seq) {
        const auto length = static_cast<int64_t>(sequences_[static_cast<size_t>(seq)].size());
        const int64_t behind = window == 0 ? 0 : std::max<int64_t>(0, length - window) / 32;
        const int64_t most = std::min(held[klass][static_cast<size_t>(seq)], (length + 31) / 32 - behind);
        EXPECT_EQ(n_held(klass, seq), most) << "window " << window << " length " << length;
        n_gone += static_cast<int>(behind);
      }
    }
  }

  void do_clear() {
    cache_.clear();
    for (auto& sequence : sequences_) {
      sequence.clear();
    }
  }

  // References balance, free pages are poisoned, and all that a next position may see is where it was written.
  void check_everything() {
    for (size_t klass = 0; klass < places_.size(); ++klass) {
      const KvClassConfig& config = cache_.config().classes[klass];
      const auto k = static_cast<int32_t>(klass);
      std::vector<int32_t> refs(static_cast<size_t>(config.n_pages), 0);
      std::vector<int64_t> indices(refs.size(), -1);
      for (int32_t seq = 0; seq < cache_.config().n_seq_max; ++seq) {
        const auto pages = cache_.pages(k, seq);
        const auto& sequence = sequences_[static_cast<size_t>(seq)];
        const auto length = static_cast<int64_t>(sequence.size());
        ASSERT_EQ(cache_.length(seq), length);
        ASSERT_EQ(static_cast<int64_t>(pages.size()), (length + 31) / 32);
        for (size_t i = 0; i < pages.size(); ++i) {
          if (pages[i] >= 0) {
            const auto page = static_cast<size_t>(pages[i]);
            ++refs.at(page);
            EXPECT_TRUE(indices[page] < 0 || indices[page] == static_cast<int64_t>(i)) << "shared at other positions";
            indices[page] = static_cast<int64_t>(i);
          }
        }
        for (int64_t j = config.window == 0 ? 0 : std::max<int64_t>(0, length - config.window + 1); j < length; ++j) {
          const int32_t page = pages[static_cast<size_t>(j / 32)];
          ASSERT_GE(page, 0) << "position " << j << " of " << length << " is gone, window " << config.window;
          ASSERT_EQ(places_[klass][static_cast<size_t>(page * 32 + j % 32)], sequence[static_cast<size_t>(j)]);
        }
      }
      int64_t used = 0;
      for (int32_t page = 0; page < config.n_pages; ++page) {
        EXPECT_EQ(cache_.page_refs(k, page), refs[static_cast<size_t>(page)]);
        if (refs[static_cast<size_t>(page)] > 0) {
          ++used;
        } else {
          std::fill_n(places_[klass].begin() + page * kPageTokens, kPageTokens, kNothing);
        }
      }
      EXPECT_EQ(cache_.pages_used(k), used);
      EXPECT_EQ(cache_.pages_used(k) + cache_.pages_free(k), config.n_pages);
    }
  }

  std::mt19937_64 random_;
  KvCache cache_;
  KvBatch batch_;                                // reused, as the runtime does
  std::vector<std::vector<int64_t>> sequences_;  // [seq][position] token
  std::vector<std::vector<int64_t>> places_;     // [class][slot] token
  int64_t next_token_ = 0;
};

TEST(KvCache, AgreesWithANaiveModelOverRandomOperations) {
  int n_prepared = 0;
  int n_full = 0;
  int n_copies = 0;
  int n_gone = 0;
  int n_refused = 0;
  for (uint64_t seed = 1; seed <= 2500; ++seed) {
    ModelRun run(seed);
    run.run(40);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    n_prepared += run.n_prepared;
    n_full += run.n_full;
    n_copies += run.n_copies;
    n_gone += run.n_gone;
    n_refused += run.n_refused;
  }
  std::printf("2500 runs from seed 1: %d batches, %d full, %d copies, %d pages behind windows, %d refused\n",
              n_prepared, n_full, n_copies, n_gone, n_refused);
  EXPECT_GT(n_prepared, 10000);
  EXPECT_GT(n_full, 1000);
  EXPECT_GT(n_copies, 1000);
  EXPECT_GT(n_gone, 1000);
  EXPECT_GT(n_refused, 1000);
}

}  // namespace
}  // namespace tessera

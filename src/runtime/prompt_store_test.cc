#include "runtime/prompt_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> ids(int32_t first, int64_t n) {
  std::vector<int32_t> result(static_cast<size_t>(n));
  std::iota(result.begin(), result.end(), first);
  return result;
}

PromptOutline dense(std::vector<int32_t> tokens) {
  return {std::move(tokens)};
}

StateBytes bytes(uint64_t n) {
  return {std::make_shared<std::byte[]>(n), n};
}

// A store as a model has it, within a limit for several.
class Holder final : public PromptRam::Holder {
 public:
  explicit Holder(PromptRam& ram) : store(ram), ram_(ram) { ram.join(*this); }
  ~Holder() override { ram_.leave(*this); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  [[nodiscard]] PromptRam::Holding holding() const override { return store.holding(); }
  void drop_oldest() override { store.drop_oldest(); }
  uint64_t add(int32_t first, uint64_t n_bytes, bool unsaved = false) {
    const uint64_t id = store.add(dense(ids(first, 100)), bytes(n_bytes), unsaved);
    ram_.balance();
    return id;
  }

  PromptStore store;

 private:
  PromptRam& ram_;
};

TEST(PromptOutline, SaysHowMuchOfAPromptItGives) {
  const PromptOutline plain = dense(ids(0, 100));
  EXPECT_EQ(plain.usable(ids(0, 200)), 100);
  EXPECT_EQ(plain.usable(ids(0, 40)), 40);
  EXPECT_EQ(plain.usable(ids(1, 40)), 0);
  EXPECT_EQ(plain.usable({}), 0);

  const PromptOutline window{ids(0, 100), 60};
  EXPECT_EQ(window.usable(ids(0, 200)), 100);
  EXPECT_EQ(window.usable(ids(0, 60)), 60);
  EXPECT_EQ(window.usable(ids(0, 59)), 0);

  const PromptOutline hybrid{ids(0, 100), 0, true, {30, 70}};
  EXPECT_EQ(hybrid.usable(ids(0, 100)), 100);
  EXPECT_EQ(hybrid.usable(ids(0, 99)), 70);
  EXPECT_EQ(hybrid.usable(ids(0, 69)), 30);
  EXPECT_EQ(hybrid.usable(ids(0, 29)), 0);
}

TEST(PromptStore, FindsTheLongestAndPrefersWhatIsInMemory) {
  PromptRam ram(1000);
  PromptStore store(ram);
  const uint64_t one = store.add(dense(ids(0, 100)), bytes(10), false);
  const uint64_t two = store.add_file(dense(ids(0, 100)), 10, "a");
  EXPECT_EQ(store.find(ids(0, 50)).id, one);
  EXPECT_EQ(store.find(ids(0, 50)).length, 50);
  store.drop(one);
  EXPECT_EQ(store.find(ids(0, 50)).id, two);
  EXPECT_EQ(store.find(ids(1, 50)).id, 0u);
  EXPECT_EQ(store.bytes_held(), 0u);
}

TEST(PromptStore, WhatALongerOneGivesIsNotKeptTwice) {
  PromptRam ram(1000);
  PromptStore store(ram);
  const uint64_t one = store.add(dense(ids(0, 100)), bytes(10), true);
  store.set_saved(one, "one");
  store.add(dense(ids(500, 100)), bytes(10), false);
  store.add(dense(ids(0, 130)), bytes(13), false);
  EXPECT_EQ(store.n_entries(), 2u);
  EXPECT_EQ(store.bytes_held(), 23u);
  EXPECT_THAT(store.dropped_files(), ElementsAre("one"));
  EXPECT_THAT(store.dropped_files(), IsEmpty());
  // A window that has gone on cannot give its beginning.
  store.add({ids(0, 300), 200}, bytes(30), false);
  EXPECT_EQ(store.n_entries(), 3u);
  EXPECT_EQ(store.find(ids(0, 150)).length, 130);
}

TEST(PromptStore, BytesGoByLastUse) {
  PromptRam ram(30);
  Holder a(ram);
  const uint64_t one = a.add(0, 10);
  const uint64_t two = a.add(1000, 10);
  const uint64_t three = a.add(2000, 10);
  a.store.touch(one);
  const uint64_t four = a.add(3000, 10);
  EXPECT_EQ(a.store.entry(two), nullptr);
  EXPECT_NE(a.store.entry(one), nullptr);
  a.add(4000, 31);
  EXPECT_EQ(a.store.n_entries(), 0u);
  EXPECT_EQ(a.store.entry(three), nullptr);
  EXPECT_EQ(a.store.entry(four), nullptr);
  EXPECT_EQ(a.store.bytes_held(), 0u);
}

TEST(PromptStore, OneLimitHoldsForAllStores) {
  PromptRam ram(30);
  Holder a(ram);
  {
    Holder b(ram);
    const uint64_t one = a.add(0, 10);
    const uint64_t two = b.add(0, 10);
    const uint64_t three = a.add(1000, 10);
    const uint64_t four = b.add(1000, 10);
    EXPECT_EQ(a.store.entry(one), nullptr) << "the oldest of all";
    a.store.touch(three);
    const uint64_t five = a.add(2000, 10);
    EXPECT_EQ(b.store.entry(two), nullptr);
    EXPECT_NE(a.store.entry(three), nullptr);
    const uint64_t six = a.add(3000, 15);
    EXPECT_EQ(b.store.entry(four), nullptr);
    EXPECT_EQ(a.store.entry(three), nullptr);
    EXPECT_NE(a.store.entry(five), nullptr);
    EXPECT_NE(a.store.entry(six), nullptr);
    // What waits for its file stays, and is not counted.
    b.add(5000, 100, true);
    EXPECT_EQ(b.store.bytes_held(), 100u);
    EXPECT_EQ(a.store.bytes_held(), 25u);
    b.add(6000, 5);
  }
  EXPECT_EQ(a.store.bytes_held(), 25u);
  a.add(7000, 5);
  EXPECT_EQ(a.store.bytes_held(), 30u) << "what the other had is free";
}

TEST(PromptStore, WhatHasAFileStaysKnownWithoutItsBytes) {
  PromptRam ram(0);
  Holder a(ram);
  const uint64_t one = a.add(0, 10, true);
  EXPECT_EQ(a.store.bytes_held(), 10u);
  EXPECT_EQ(a.store.bytes_unsaved(), 10u);
  a.store.set_saved(one, "one");
  ram.balance();
  EXPECT_EQ(a.store.bytes_held(), 0u);
  EXPECT_EQ(a.store.bytes_unsaved(), 0u);
  EXPECT_EQ(a.store.find(ids(0, 80)).length, 80);
  a.store.forget_file("one");
  EXPECT_EQ(a.store.n_entries(), 0u);
  // Not written: there is nothing to keep.
  const uint64_t two = a.add(0, 10, true);
  a.store.set_saved(two, {});
  ram.balance();
  EXPECT_EQ(a.store.n_entries(), 0u);
  // It went while it was written.
  a.store.set_saved(two, "late");
  EXPECT_THAT(a.store.dropped_files(), ElementsAre("late"));
}

TEST(PromptStore, BytesComeBackFromFiles) {
  PromptRam ram(15);
  Holder a(ram);
  const uint64_t one = a.store.add_file(dense(ids(0, 100)), 10, "one");
  const uint64_t two = a.store.add_file(dense(ids(1000, 100)), 10, "two");
  a.store.set_bytes(one, bytes(10));
  a.store.set_bytes(one, bytes(10));
  EXPECT_EQ(a.store.bytes_held(), 10u);
  a.store.set_bytes(two, bytes(10));
  ram.balance();
  EXPECT_EQ(a.store.entry(one)->bytes.data, nullptr);
  EXPECT_NE(a.store.entry(two)->bytes.data, nullptr);
  EXPECT_EQ(a.store.bytes_held(), 10u);
  EXPECT_FALSE(a.store.has_dropped_files());
}

TEST(PromptStore, KeepsWhatSparesAPageAndASixteenth) {
  EXPECT_FALSE(worth_keeping(31, 31));
  EXPECT_TRUE(worth_keeping(32, 32));
  EXPECT_TRUE(worth_keeping(32, 512));
  EXPECT_FALSE(worth_keeping(32, 5120));
  EXPECT_TRUE(worth_keeping(320, 5120));
}

}  // namespace
}  // namespace tessera

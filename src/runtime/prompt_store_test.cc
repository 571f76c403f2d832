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
  PromptStore store(1000);
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
  PromptStore store(1000);
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
  PromptStore store(30);
  const uint64_t one = store.add(dense(ids(0, 100)), bytes(10), false);
  const uint64_t two = store.add(dense(ids(1000, 100)), bytes(10), false);
  const uint64_t three = store.add(dense(ids(2000, 100)), bytes(10), false);
  store.touch(one);
  const uint64_t four = store.add(dense(ids(3000, 100)), bytes(10), false);
  EXPECT_EQ(store.entry(two), nullptr);
  EXPECT_NE(store.entry(one), nullptr);
  store.add(dense(ids(4000, 100)), bytes(31), false);
  EXPECT_EQ(store.n_entries(), 0u);
  EXPECT_EQ(store.entry(three), nullptr);
  EXPECT_EQ(store.entry(four), nullptr);
  EXPECT_EQ(store.bytes_held(), 0u);
}

TEST(PromptStore, WhatHasAFileStaysKnownWithoutItsBytes) {
  PromptStore store(0);
  const uint64_t one = store.add(dense(ids(0, 100)), bytes(10), true);
  EXPECT_EQ(store.bytes_held(), 10u);
  EXPECT_EQ(store.bytes_unsaved(), 10u);
  store.set_saved(one, "one");
  EXPECT_EQ(store.bytes_held(), 0u);
  EXPECT_EQ(store.bytes_unsaved(), 0u);
  EXPECT_EQ(store.find(ids(0, 80)).length, 80);
  store.forget_file("one");
  EXPECT_EQ(store.n_entries(), 0u);
  // Not written: there is nothing to keep.
  const uint64_t two = store.add(dense(ids(0, 100)), bytes(10), true);
  store.set_saved(two, {});
  EXPECT_EQ(store.n_entries(), 0u);
  // It went while it was written.
  store.set_saved(two, "late");
  EXPECT_THAT(store.dropped_files(), ElementsAre("late"));
}

TEST(PromptStore, BytesComeBackFromFiles) {
  PromptStore store(15);
  const uint64_t one = store.add_file(dense(ids(0, 100)), 10, "one");
  const uint64_t two = store.add_file(dense(ids(1000, 100)), 10, "two");
  store.set_bytes(one, bytes(10));
  store.set_bytes(one, bytes(10));
  EXPECT_EQ(store.bytes_held(), 10u);
  store.set_bytes(two, bytes(10));
  EXPECT_EQ(store.entry(one)->bytes.data, nullptr);
  EXPECT_NE(store.entry(two)->bytes.data, nullptr);
  EXPECT_EQ(store.bytes_held(), 10u);
  EXPECT_FALSE(store.has_dropped_files());
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

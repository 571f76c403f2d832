#include "device/cpu/cpu_memory.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sstream>
#include <unistd.h>
#include <vector>

#include "base/proc.h"
#include "base/units.h"

namespace tessera {
namespace {

constexpr uint64_t kMiB = 1 << 20;

std::unique_ptr<CpuMemory> reserve(const std::shared_ptr<MemoryBudget>& budget, uint64_t bytes,
                                   const std::string& purpose = "weights") {
  auto memory = CpuMemory::reserve(budget, bytes, purpose);
  EXPECT_TRUE(memory.ok()) << memory.status().message();
  return std::move(memory).value();
}

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0;
  uint64_t resident = 0;
  file >> size >> resident;
  return resident * page_bytes();
}

// Whether a byte can be read, asked of the kernel, which answers EFAULT where a load would be fatal.
bool readable(const std::byte* address) {
  int fds[2];
  EXPECT_EQ(pipe(fds), 0);
  const bool ok = write(fds[1], address, 1) == 1;
  close(fds[0]);
  close(fds[1]);
  return ok;
}

TEST(CpuMemory, ReservingCostsNothing) {
  const auto budget = std::make_shared<MemoryBudget>("cpu:0", kMiB);
  const auto memory = reserve(budget, uint64_t{1} << 36);
  EXPECT_EQ(memory->reserved_bytes(), uint64_t{1} << 36);
  EXPECT_EQ(memory->committed_bytes(), 0U);
  EXPECT_EQ(budget->used_bytes(), 0U);
  EXPECT_FALSE(readable(memory->base()));
  EXPECT_EQ(CpuMemory::reserve(budget, UINT64_MAX, "kv").status().code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(CpuMemory::reserve(budget, uint64_t{1} << 60, "kv").status().code(), ErrorCode::kOutOfMemory);
  EXPECT_TRUE(reserve(budget, 0)->resize(0).ok());
}

// Node 0 is there on every machine; what the system took for an order is read back.
TEST(CpuMemory, PagesAreSpreadOverNodes) {
  const auto budget = std::make_shared<MemoryBudget>("cpu:0", 8 * kMiB);
  auto memory = CpuMemory::reserve(budget, 4 * kMiB, "weights", {0});
  ASSERT_TRUE(memory.ok());
  ASSERT_TRUE((*memory)->resize(4 * kMiB).ok());
  std::memset((*memory)->base(), 1, 4 * kMiB);
  std::ifstream maps("/proc/self/numa_maps");
  if (!maps) {
    GTEST_SKIP() << "this system has no memory nodes";
  }
  std::ostringstream address;
  address << std::hex << reinterpret_cast<uintptr_t>((*memory)->base());
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    found = found || line.find(address.str() + " interleave:0") != std::string::npos;
  }
  EXPECT_TRUE(found);
}

TEST(CpuMemory, GrowsWithinTheBudgetAndSaysWhatIsLacking) {
  const auto budget = std::make_shared<MemoryBudget>("cpu:1", 8 * kMiB);
  const auto weights = reserve(budget, 64 * kMiB);
  const auto kv = reserve(budget, 64 * kMiB, "kv");
  std::byte* const base = weights->base();
  ASSERT_TRUE(weights->resize(6 * kMiB).ok());
  const Status status = kv->resize(3 * kMiB);
  EXPECT_EQ(status.code(), ErrorCode::kDoesNotFit);
  EXPECT_EQ(status.message(),
            "device cpu:1 lacks 1.00 MiB for kv: needs 3.00 MiB more, has 2.00 MiB free of its budget of 8.00 MiB; "
            "raise --device-memory or ask for less");
  EXPECT_EQ(kv->committed_bytes(), 0U);
  EXPECT_EQ(budget->used_bytes(), 6 * kMiB);
  EXPECT_TRUE(kv->resize(2 * kMiB).ok()) << "to the last byte";
  EXPECT_EQ(weights->resize(6 * kMiB + 1).code(), ErrorCode::kDoesNotFit);
  ASSERT_TRUE(weights->resize(kMiB).ok());
  EXPECT_TRUE(kv->resize(7 * kMiB).ok()) << "what one range gives back another may take";
  EXPECT_EQ(weights->base(), base);
}

TEST(CpuMemory, NeverGrowsBeyondItsReservation) {
  const auto budget = std::make_shared<MemoryBudget>("cpu:0", 64 * kMiB);
  const auto memory = reserve(budget, kMiB);
  EXPECT_EQ(memory->resize(kMiB + 1).code(), ErrorCode::kDoesNotFit);
  EXPECT_EQ(memory->committed_bytes(), 0U);
  EXPECT_EQ(budget->used_bytes(), 0U);
}

TEST(CpuMemory, GivesItsBudgetBackWhenDestroyed) {
  const auto budget = std::make_shared<MemoryBudget>("cpu:0", kMiB);
  for (int i = 0; i < 3; ++i) {
    const auto memory = reserve(budget, kMiB);
    EXPECT_TRUE(memory->resize(kMiB).ok());
  }
  EXPECT_EQ(budget->used_bytes(), 0U);
}

TEST(CpuMemory, NewBytesAreZeroAlsoAfterShrinking) {
  const auto budget = std::make_shared<MemoryBudget>("cpu:0", 64 * kMiB);
  const auto memory = reserve(budget, 64 * kMiB);
  for (const uint64_t high : {uint64_t{5000}, 5 * kMiB + 1}) {
    for (const uint64_t low : {uint64_t{0}, uint64_t{100}, uint64_t{4096}, uint64_t{4999}}) {
      SCOPED_TRACE(testing::Message() << high << " to " << low);
      ASSERT_TRUE(memory->resize(high).ok());
      std::memset(memory->base(), 0xAB, high);
      ASSERT_TRUE(memory->resize(low).ok());
      ASSERT_TRUE(memory->resize(high).ok());
      uint64_t n_kept = 0;
      uint64_t n_zero = 0;
      for (uint64_t i = 0; i < high; ++i) {
        n_kept += i < low && memory->base()[i] == std::byte{0xAB} ? 1 : 0;
        n_zero += i >= low && memory->base()[i] == std::byte{0} ? 1 : 0;
      }
      EXPECT_EQ(n_kept, low);
      EXPECT_EQ(n_zero, high - low);
    }
  }
}

TEST(CpuMemory, ShrinkingGivesPagesBackToTheSystem) {
  const auto budget = std::make_shared<MemoryBudget>("cpu:0", 256 * kMiB);
  const auto memory = reserve(budget, 256 * kMiB);
  const uint64_t before = resident_bytes();
  ASSERT_TRUE(memory->resize(128 * kMiB).ok());
  std::memset(memory->base(), 1, 128 * kMiB);
  const uint64_t full = resident_bytes();
  EXPECT_GE(full, before + 120 * kMiB);
  ASSERT_TRUE(memory->resize(3 * kMiB).ok());
  EXPECT_LE(resident_bytes() + 120 * kMiB, full);
  EXPECT_EQ(memory->base()[3 * kMiB - 1], std::byte{1});
  EXPECT_TRUE(readable(memory->base() + 3 * kMiB - 1));
  EXPECT_FALSE(readable(memory->base() + 3 * kMiB)) << "stray access to memory given back must not revive it";
}

TEST(CpuMemory, WhatIsKeptAtHandIsBackedButNotUsed) {
  const auto budget = std::make_shared<MemoryBudget>("cpu:0", 256 * kMiB);
  const SparePages& spare = budget->spare();
  auto memory = reserve(budget, 256 * kMiB, "weights");
  ASSERT_TRUE(memory->resize(100 * kMiB).ok());
  std::memset(memory->base(), 1, 100 * kMiB);
  const uint64_t full = resident_bytes();
  memory->shrink(40 * kMiB, 50 * kMiB);
  EXPECT_EQ(memory->committed_bytes(), 40 * kMiB);
  EXPECT_EQ(budget->used_bytes(), 40 * kMiB);
  EXPECT_EQ(spare.bytes(), 50 * kMiB) << "of the 60 that were given back";
  EXPECT_NEAR(mib(full) - mib(resident_bytes()), 10, 2);
  EXPECT_FALSE(readable(memory->base() + 40 * kMiB));

  ASSERT_TRUE(memory->resize(60 * kMiB).ok());
  EXPECT_EQ(spare.bytes(), 30 * kMiB) << "the first 20 are used again";
  EXPECT_NEAR(mib(full) - mib(resident_bytes()), 10, 2);
  memory->shrink(50 * kMiB, 5 * kMiB);
  EXPECT_EQ(spare.bytes(), 5 * kMiB) << "of both, what lies next";
  ASSERT_TRUE(memory->resize(80 * kMiB).ok());
  EXPECT_EQ(spare.bytes(), 0U);
  EXPECT_EQ(memory->base()[79 * kMiB], std::byte{0}) << "new, not kept";
  ASSERT_TRUE(memory->resize(10 * kMiB).ok());
  EXPECT_EQ(spare.bytes(), 0U) << "resize() keeps nothing";
  memory->shrink(0, 1000);
  EXPECT_EQ(spare.bytes(), 0U) << "whole pages only";

  // The rest of a page is zero again, whether what came behind it was kept or not.
  ASSERT_TRUE(memory->resize(8192).ok());
  std::memset(memory->base(), 1, 8192);
  memory->shrink(1000, kMiB);
  EXPECT_EQ(spare.bytes(), 4096U);
  ASSERT_TRUE(memory->resize(500).ok());
  ASSERT_TRUE(memory->resize(4096).ok());
  EXPECT_EQ(std::count(memory->base(), memory->base() + 4096, std::byte{0}), 4096 - 500);

  // The limit is the device's, over all ranges; what the range itself had kept is given back first.
  const auto other = reserve(budget, 64 * kMiB);
  ASSERT_TRUE(other->resize(10 * kMiB).ok() && memory->resize(20 * kMiB).ok());
  other->shrink(0, 8 * kMiB);
  memory->shrink(15 * kMiB, 12 * kMiB);
  EXPECT_EQ(spare.bytes(), 12 * kMiB);
  memory->shrink(5 * kMiB, 12 * kMiB);
  EXPECT_EQ(spare.bytes(), 12 * kMiB);
  ASSERT_TRUE(other->resize(10 * kMiB).ok());

  ASSERT_TRUE(memory->resize(20 * kMiB).ok());
  memory->shrink(0, 20 * kMiB);
  memory.reset();
  EXPECT_EQ(spare.bytes(), 0U) << "they go with the range";
}

// However ranges grow and shrink: what is used and what is kept stay within the budget, and whatever is not used is
// free.
TEST(CpuMemory, WhatIsKeptGivesWayToWhateverGrows) {
  constexpr uint64_t kBudget = 64 * kMiB;
  const auto budget = std::make_shared<MemoryBudget>("cpu:0", kBudget);
  const SparePages& spare = budget->spare();
  std::vector<std::unique_ptr<CpuMemory>> ranges;
  for (const char* purpose : {"weights", "kv", "staging"}) {
    ranges.push_back(reserve(budget, kBudget, purpose));
  }
  std::mt19937_64 random(1);
  uint64_t most_spare = 0;
  for (int i = 0; i < 2000; ++i) {
    CpuMemory& range = *ranges[random() % ranges.size()];
    const uint64_t bytes = random() % (range.committed_bytes() + kBudget - budget->used_bytes() + 1);
    if (bytes < range.committed_bytes()) {
      range.shrink(bytes, random() % kBudget);
    } else {
      ASSERT_TRUE(range.resize(bytes).ok()) << "what is kept is free";
    }
    ASSERT_LE(budget->used_bytes() + spare.bytes(), kBudget);
    most_spare = std::max(most_spare, spare.bytes());
  }
  EXPECT_GT(most_spare, kBudget / 2);
  ASSERT_TRUE(ranges[0]->resize(0).ok() && ranges[1]->resize(0).ok());
  ranges[2]->shrink(0, 0);
  ASSERT_TRUE(ranges[0]->resize(kBudget).ok());
  EXPECT_EQ(spare.bytes(), 0U);
}

}  // namespace
}  // namespace tessera

#include "device/cpu/cpu_memory.h"

#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <unistd.h>

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
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
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

}  // namespace
}  // namespace tessera

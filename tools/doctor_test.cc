#include "doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using testing::HasSubstr;

constexpr uint64_t kGib = uint64_t{1} << 30;

// A machine of which nothing can be said.
MachineFacts good_machine() {
  MachineFacts facts;
  facts.processor = "A fast one";
  facts.isas = {"portable", "avx2"};
  facts.memory_bytes = facts.usable_bytes = 16 * kGib;
  facts.available_bytes = 12 * kGib;
  facts.huge_pages = "madvise";
  facts.n_open_files = 4096;
  return facts;
}

void expect(const Check& check, Verdict verdict, std::string_view found, std::string_view to_do) {
  EXPECT_EQ(check.verdict, verdict) << check.name << ": " << check.found;
  EXPECT_THAT(check.found, HasSubstr(found)) << check.name;
  EXPECT_THAT(check.to_do, HasSubstr(to_do)) << check.name;
  EXPECT_EQ(check.to_do.empty(), check.verdict == Verdict::kOk) << check.name;
}

TEST(Doctor, NothingIsWrongWithAGoodMachine) {
  const MachineFacts facts = good_machine();
  expect(check_processor(facts), Verdict::kOk, "computes with avx2", "");
  expect(check_threads(facts, 1), Verdict::kOk, "1 of 1", "");
  expect(check_nodes(facts, "none"), Verdict::kOk, "1 memory node", "");
  expect(check_memory(facts), Verdict::kOk, "12.0 GiB of 16.0 GiB free", "");
  expect(check_memory_limit(facts), Verdict::kOk, "none", "");
  expect(check_swap(facts), Verdict::kOk, "none", "");
  expect(check_overcommit(facts, 100 * kGib), Verdict::kOk, "not strict", "");
  expect(check_huge_pages(facts), Verdict::kOk, "madvise", "");
  expect(check_address_space(facts, 100 * kGib), Verdict::kOk, "no limit", "");
  expect(check_open_files(facts, 1024), Verdict::kOk, "4096", "");
}

TEST(Doctor, EachFaultHasItsFix) {
  MachineFacts facts = good_machine();
  facts.isas = {"portable"};
  facts.missing_isas = {"avx2", "avx512"};
  expect(check_processor(facts), Verdict::kWarn, "lacks avx2, avx512", "virtual machine");
  facts.n_cpus = 8;
  facts.n_threads = 2;
  expect(check_threads(facts, 0), Verdict::kWarn, "2 of 8", "taskset");
  expect(check_threads(facts, 4), Verdict::kWarn, "asks for 4", "--threads 2");
  facts.n_nodes = 2;
  expect(check_nodes(facts, "none"), Verdict::kWarn, "2 memory nodes", "--numa distribute");
  expect(check_nodes(facts, "isolate"), Verdict::kOk, "2 memory nodes", "");
  facts.available_bytes = kGib;
  facts.processes = {{"browser", 17, 9 * kGib}, {"editor", 18, 2 * kGib}};
  expect(check_memory(facts), Verdict::kWarn, "browser (17) 9.0 GiB, editor (18) 2.0 GiB", "end what");
  facts.usable_bytes = 4 * kGib;
  expect(check_memory_limit(facts), Verdict::kWarn, "4.0 GiB of the machine's 16.0 GiB", "MemoryMax=");
  facts.swap_bytes = 4 * kGib;
  expect(check_swap(facts), Verdict::kOk, "0.0 GiB of 4.0 GiB", "");
  facts.swap_used_bytes = 3 * kGib;
  expect(check_swap(facts), Verdict::kWarn, "3.0 GiB of 4.0 GiB", "vm.swappiness");
  facts.huge_pages = "never";
  expect(check_huge_pages(facts), Verdict::kWarn, "never", "transparent_hugepage/enabled");
  facts.huge_pages = "";
  expect(check_huge_pages(facts), Verdict::kWarn, "no transparent ones", "kernel");
  facts.n_open_files = 1024;
  expect(check_open_files(facts, 1024), Verdict::kWarn, "1024", "ulimit -n 1088");
}

TEST(Doctor, NeedsAreComparedWithLimits) {
  MachineFacts facts = good_machine();
  facts.strict_commit = true;
  facts.commit_left_bytes = 2 * kGib;
  expect(check_overcommit(facts, kGib), Verdict::kOk, "2.0 GiB left", "");
  expect(check_overcommit(facts, 3 * kGib), Verdict::kBad, "3.0 GiB needed", "vm.overcommit_memory=0");
  facts.address_space_bytes = 2 * kGib;
  expect(check_address_space(facts, 0), Verdict::kWarn, "limited to 2.0 GiB", "ulimit -v");
  expect(check_address_space(facts, 3 * kGib), Verdict::kBad, "3.0 GiB needed", "ulimit -v");
}

TEST(Doctor, Addresses) {
  expect(check_address("127.0.0.1", 0), Verdict::kOk, "127.0.0.1", "");
  expect(check_address("no host of this name", 0), Verdict::kBad, "no host", "--host");
  expect(check_address("192.0.2.1", 0), Verdict::kBad, "192.0.2.1", "--host");  // for documents only
  expect(check_address("/no folder/s.sock", 0), Verdict::kBad, "No such file", "--host");
  expect(check_address(std::string(200, 'x') + ".sock", 0), Verdict::kBad, "too long", "107 bytes");
}

TEST(Doctor, ReadsThisMachine) {
  const MachineFacts facts = machine_facts();
  EXPECT_FALSE(facts.processor.empty());
  EXPECT_FALSE(facts.isas.empty());
  EXPECT_GE(facts.n_cpus, 1);
  EXPECT_GE(facts.memory_bytes, facts.usable_bytes);
  EXPECT_GT(facts.usable_bytes, 0U);
  EXPECT_LE(facts.processes.size(), 3U);
}

}  // namespace
}  // namespace tessera

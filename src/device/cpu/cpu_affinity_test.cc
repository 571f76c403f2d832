#include "device/cpu/cpu_affinity.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "base/threads.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/cpu_launch.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two nodes of four CPUs; this process may use all but CPU 7 and runs on CPU 5.
const CpuTopology kTwoNodes = {{0, 1, 2, 3, 4, 5, 6}, {{0, {0, 1, 2, 3}}, {1, {4, 5, 6, 7}}}, 5};

std::vector<CpuList> sets(const CpuAffinityOptions& options, const CpuTopology& topology = kTwoNodes) {
  const auto affinity = choose_affinity(options, topology);
  EXPECT_TRUE(affinity.ok()) << affinity.status().message();
  return affinity.ok() ? affinity->sets : std::vector<CpuList>();
}

std::string refusal(const CpuAffinityOptions& options) {
  const auto affinity = choose_affinity(options, kTwoNodes);
  return affinity.ok() ? "" : affinity.status().message();
}

TEST(CpuAffinity, NothingAskedIsNothingSet) {
  EXPECT_TRUE(sets({}).empty());
  EXPECT_TRUE(sets({.numa = "none"}).empty());
  EXPECT_TRUE(sets({.numa = "numactl"}).empty());
  EXPECT_TRUE(choose_affinity({}, kTwoNodes)->of(3).empty());
}

TEST(CpuAffinity, MaskAndRangeNameCpus) {
  EXPECT_THAT(sets({.mask = "5"}), ElementsAre(CpuList{0, 2}));
  EXPECT_THAT(sets({.mask = "0x3F"}), ElementsAre(CpuList{0, 1, 2, 3, 4, 5}));
  EXPECT_THAT(sets({.range = "2-4"}), ElementsAre(CpuList{2, 3, 4}));
  EXPECT_THAT(sets({.range = "6-6"}), ElementsAre(CpuList{6}));
  EXPECT_THAT(sets({.mask = "3", .range = "1-2"}), ElementsAre(CpuList{0, 1, 2}));
  const CpuTopology large = {{100, 101}, {{0, {100, 101}}}, 100};
  EXPECT_THAT(sets({.mask = "3" + std::string(25, '0')}, large), ElementsAre(CpuList{100, 101}));
}

TEST(CpuAffinity, StrictGivesEachThreadACpu) {
  EXPECT_THAT(sets({.mask = "16", .strict = true}), ElementsAre(CpuList{1}, CpuList{2}, CpuList{4}));
  EXPECT_EQ(sets({.strict = true}).size(), 7U);
  const auto affinity = choose_affinity({.range = "2-3", .strict = true}, kTwoNodes);
  EXPECT_THAT(affinity->of(0), ElementsAre(2));
  EXPECT_THAT(affinity->of(1), ElementsAre(3));
  EXPECT_THAT(affinity->of(2), ElementsAre(2)) << "more threads than CPUs share them";
  EXPECT_THAT(affinity->cpus, ElementsAre(2, 3));
}

TEST(CpuAffinity, NodesAreServedInTurnOrAlone) {
  EXPECT_THAT(sets({.numa = "distribute"}), ElementsAre(CpuList{0, 1, 2, 3}, CpuList{4, 5, 6}));
  EXPECT_THAT(sets({.range = "3-5", .strict = true, .numa = "distribute"}),
              ElementsAre(CpuList{3}, CpuList{4}, CpuList{5}));
  EXPECT_THAT(choose_affinity({.numa = "distribute"}, kTwoNodes)->interleave_nodes, ElementsAre(0, 1));
  EXPECT_THAT(sets({.range = "0-1", .numa = "distribute"}), ElementsAre(CpuList{0, 1}));
  EXPECT_THAT(sets({.numa = "isolate"}), ElementsAre(CpuList{4, 5, 6}));
  EXPECT_THAT(sets({.range = "3-4", .numa = "isolate"}), ElementsAre(CpuList{4}));
  EXPECT_TRUE(choose_affinity({.numa = "isolate"}, kTwoNodes)->interleave_nodes.empty());
}

TEST(CpuAffinity, ErrorsNameTheFlagAndTheCpusThereAre) {
  EXPECT_EQ(refusal({.mask = "0xF0"}), "--cpu-mask 0xF0 names CPUs 7; there are CPUs 0-6");
  EXPECT_EQ(refusal({.mask = "F000001"}), "--cpu-mask F000001 names CPUs 24-27; there are CPUs 0-6");
  EXPECT_EQ(refusal({.range = "5-9"}), "--cpu-range 5-9 names CPUs 7-9; there are CPUs 0-6");
  EXPECT_EQ(refusal({.mask = "0"}), "--cpu-mask 0 names no CPU; there are CPUs 0-6");
  for (const char* mask : {"0x", "g", "-1", " 1", "1 "}) {
    EXPECT_THAT(refusal({.mask = mask}), HasSubstr("--cpu-mask")) << mask;
  }
  EXPECT_THAT(refusal({.mask = std::string(5000, '1')}), HasSubstr("at most 8192 bits"));
  for (const char* range : {"3", "-3", "3-", "3-2", "a-b", "1-2-3", "0-99999999999", "1-9000"}) {
    EXPECT_THAT(refusal({.range = range}), HasSubstr("is no range of CPUs like 0-3; there are CPUs 0-6")) << range;
  }
  EXPECT_THAT(refusal({.numa = "everywhere"}), HasSubstr("known are none, distribute, isolate, numactl"));
  EXPECT_THAT(refusal({.range = "0-3", .numa = "isolate"}), HasSubstr("--numa isolate: none of the CPUs 0-3"));
}

TEST(CpuAffinity, ListsAreReadAndWritten) {
  EXPECT_THAT(parse_cpu_list("0-2,8,10-11"), ElementsAre(0, 1, 2, 8, 10, 11));
  EXPECT_TRUE(parse_cpu_list("").empty());
  EXPECT_THAT(parse_cpu_list("3,x,5"), ElementsAre(3));
  EXPECT_EQ(cpu_list_text({0, 1, 2, 8, 10, 11}), "0-2,8,10-11");
  EXPECT_EQ(cpu_list_text({4}), "4");
  EXPECT_EQ(cpu_list_text({}), "");
}

TEST(CpuAffinity, ThisMachineHasCpusAndNodes) {
  const CpuTopology topology = cpu_topology();
  ASSERT_FALSE(topology.allowed.empty());
  EXPECT_TRUE(std::ranges::binary_search(topology.allowed, topology.current));
  ASSERT_FALSE(topology.nodes.empty());
  for (const char* numa : {"distribute", "isolate", "numactl"}) {
    EXPECT_TRUE(choose_affinity({.numa = numa}, topology).ok()) << numa;
  }
}

// CPUs on which each thread of the team found itself allowed, seen from a kernel.
std::vector<CpuList> seen_by_threads(const CpuAffinityOptions& options, int n_threads) {
  const auto affinity = choose_affinity(options, cpu_topology());
  EXPECT_TRUE(affinity.ok()) << affinity.status().message();
  auto devices = make_cpu_devices({.names = {"cpu:0"}, .n_threads = n_threads, .affinity = *affinity});
  EXPECT_TRUE(devices.ok()) << devices.status().message();
  static std::vector<CpuList> seen;
  seen.assign(static_cast<size_t>(n_threads), {});
  const KernelFn kernel = [](void* backend, const void*, const LaunchSizes&) {
    seen[static_cast<size_t>(static_cast<const CpuLaunch*>(backend)->thread)] = allowed_cpus();
  };
  (*devices)[0]->compute_queue().submit(
      std::make_shared<CommandList>(1, Command{.kernel = kernel, .args = nullptr, .copy = {}, .name = "look"}), {});
  EXPECT_TRUE((*devices)[0]->compute_queue().synchronize().ok());
  return seen;
}

TEST(CpuAffinity, EveryThreadOfTheTeamIsWhereItShouldBe) {
  const CpuList all = allowed_cpus();
  const std::string last = cpu_list_text({all.back()});
  EXPECT_THAT(seen_by_threads({.range = last + "-" + last}, 3), testing::Each(CpuList{all.back()}));
  const std::vector<CpuList> strict = seen_by_threads({.strict = true}, 3);
  for (size_t i = 0; i < strict.size(); ++i) {
    EXPECT_THAT(strict[i], ElementsAre(all[i % all.size()])) << "thread " << i;
  }
  EXPECT_THAT(seen_by_threads({}, 2), testing::Each(all));
  EXPECT_EQ(allowed_cpus(), all) << "the caller stays free";
}

}  // namespace
}  // namespace tessera

#include "device/registry.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/threads.h"
#include "device/cpu/cpu_host.h"

namespace tessera {
namespace {

std::vector<std::string> parsed(const std::vector<std::string>& names) {
  const auto specs = parse_device_names(names);
  EXPECT_TRUE(specs.ok()) << specs.status().message();
  std::vector<std::string> result;
  for (const DeviceSpec& spec : specs.ok() ? *specs : std::vector<DeviceSpec>()) {
    result.push_back(spec.name);
  }
  return result;
}

using Names = std::vector<std::string>;

TEST(Registry, ReadsDeviceNames) {
  EXPECT_EQ(parsed({}), Names({"cpu:0"}));
  EXPECT_EQ(parsed({"none"}), Names({"cpu:0"}));
  EXPECT_EQ(parsed({"cpu"}), Names({"cpu:0"}));
  EXPECT_EQ(parsed({"cpu:0", "null:0", "cpu:12"}), Names({"cpu:0", "null:0", "cpu:12"}));
  EXPECT_EQ(parsed({"cpu:0", "cpu", "cpu:1", "cpu:0"}), Names({"cpu:0", "cpu:0#2", "cpu:1", "cpu:0#3"}));
}

TEST(Registry, RefusesWhatIsNoDevice) {
  for (const auto& [names, code, part] :
       {std::tuple<Names, ErrorCode, std::string>{{"cuda:0"}, ErrorCode::kUnsupported, "devices are named cpu:0"},
        {{"CPU:0"}, ErrorCode::kUnsupported, "'CPU'"},
        {{"cpu:0", "cpu0"}, ErrorCode::kUnsupported, "'cpu0'"},
        {{""}, ErrorCode::kInvalidArgument, "backend is missing"},
        {{":0"}, ErrorCode::kInvalidArgument, "backend is missing"},
        {{"cpu:"}, ErrorCode::kInvalidArgument, "'' is no index"},
        {{"cpu:x"}, ErrorCode::kInvalidArgument, "'x' is no index"},
        {{"cpu:1x"}, ErrorCode::kInvalidArgument, "'1x' is no index"},
        {{"cpu:-1"}, ErrorCode::kInvalidArgument, "'-1' is no index"},
        {{"cpu:1000"}, ErrorCode::kInvalidArgument, "'1000' is no index"},
        {{"cpu:99999999999999999999"}, ErrorCode::kInvalidArgument, "is no index"},
        {{"cpu:0", "none"}, ErrorCode::kInvalidArgument, "beside other devices"},
        {Names(17, "cpu"), ErrorCode::kInvalidArgument, "at most 16"}}) {
    const auto specs = parse_device_names(names);
    ASSERT_FALSE(specs.ok()) << testing::PrintToString(names);
    EXPECT_EQ(specs.status().code(), code);
    EXPECT_NE(specs.status().message().find(part), std::string::npos) << specs.status().message();
    EXPECT_NE(specs.status().message().find("--device"), std::string::npos) << "names the flag";
  }
}

TEST(Registry, OpensDevicesInOrderWithTheirBudgets) {
  DeviceOptions options;
  options.names = {"cpu:0", "null:0", "cpu:0"};
  options.n_threads = 3;
  options.cpu_kernel_class = "cpu-fast";
  options.budget_bytes = {1000, 2000, 3000};
  const auto set = open_devices(options);
  ASSERT_TRUE(set.ok()) << set.status().message();
  ASSERT_EQ(set->size(), 3U);
  EXPECT_EQ((*set)[0].info().name, "cpu:0");
  EXPECT_EQ((*set)[0].info().n_threads, 2);
  EXPECT_EQ((*set)[0].info().kernel_class, "cpu-fast");
  EXPECT_EQ((*set)[1].info().name, "null:0");
  EXPECT_EQ((*set)[2].info().name, "cpu:0#2");
  EXPECT_EQ((*set)[2].info().n_threads, 1);
  EXPECT_EQ(set->n_threads, 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*set)[i].budget_bytes(), 1000 * (i + 1));
  }
}

TEST(Registry, CountsItsThreads) {
  DeviceOptions options;
  options.cpu_affinity.range = fmt::format("{0}-{0}", allowed_cpus().front());
  const auto one = open_devices(options);
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ(one->n_threads, 1) << "as many as can run on the CPUs";
  options.names = {"cpu:0", "cpu:1", "cpu:2"};
  options.n_threads = 2;
  const auto shared = open_devices(options);
  ASSERT_TRUE(shared.ok()) << shared.status().message();
  EXPECT_EQ(shared->n_threads, 2) << "one team of all devices";
  EXPECT_EQ(shared->n_runnable, 1);
  options.n_threads = kMaxThreads + 1;
  EXPECT_EQ(open_devices(options).status().message(), "--threads is 1025; it must be 0 (as many as can run) to 1024");
  options.names = {"null:0"};
  options.n_threads = 0;
  EXPECT_EQ(open_devices(options)->n_threads, 0);
}

TEST(Registry, SpreadsBudgets) {
  DeviceOptions options;
  options.names = {"cpu:0", "cpu:1", "null:0"};
  options.n_threads = 2;
  const auto free_set = open_devices(options);
  ASSERT_TRUE(free_set.ok());
  EXPECT_GT((*free_set)[0].budget_bytes(), uint64_t{1} << 20);
  EXPECT_GT((*free_set)[2].budget_bytes(), uint64_t{1} << 40);
  options.budget_bytes = {4096};
  const auto equal_set = open_devices(options);
  ASSERT_TRUE(equal_set.ok());
  for (const auto& device : equal_set->devices) {
    EXPECT_EQ(device->budget_bytes(), 4096U);
  }
  options.budget_bytes = {4096, 4096};
  EXPECT_EQ(open_devices(options).status().message(),
            "--device-memory has 2 values for 3 devices; give one for all or one for each");
  options.budget_bytes = {4096, 0, 4096};
  EXPECT_EQ(open_devices(options).status().code(), ErrorCode::kInvalidArgument);
}

TEST(Registry, ListsThisMachine) {
  const auto devices = available_devices();
  ASSERT_FALSE(devices.empty());
  EXPECT_TRUE(parse_device_names({devices[0].name}).ok());
  EXPECT_FALSE(devices[0].description.empty());
  EXPECT_GE(devices[0].n_threads, 1);
  EXPECT_GT(devices[0].memory_bytes, 0U);
  EXPECT_LE(devices[0].available_bytes, devices[0].memory_bytes);
}

TEST(CpuHost, ReadsProcTexts) {
  EXPECT_EQ(processor_name("processor\t: 0\nmodel\t\t: 207\nmodel name\t: A (R) CPU: fast \nmodel name\t: B\n"),
            "A (R) CPU: fast");
  EXPECT_EQ(processor_name("processor\t: 0\n"), "");
}

// Two models on the same devices: what one uses, the other lacks; what one has at hand, the other gets.
TEST(Registry, ALedgerCountsForAllItsLists) {
  constexpr uint64_t kMiB = 1 << 20;
  DeviceOptions options;
  options.names = {"cpu:0", "cpu:1"};
  options.budget_bytes = {16 * kMiB};
  options.n_threads = 1;
  options.ledger = std::make_shared<MemoryLedger>();
  const auto first = open_devices(options);
  options.names = {"cpu:1"};
  const auto second = open_devices(options);
  ASSERT_TRUE(first.ok() && second.ok());
  const Device& mine = *first->devices[1];
  const Device& other = *second->devices[0];
  const auto weights = (*first)[1].reserve(64 * kMiB, "weights");
  const auto others = (*second)[0].reserve(64 * kMiB, "weights");
  ASSERT_TRUE(weights.ok() && others.ok());
  ASSERT_TRUE((*weights)->resize(10 * kMiB).ok());
  EXPECT_EQ(other.used_bytes(), 10 * kMiB);
  EXPECT_EQ((*first)[0].used_bytes(), 0U);
  EXPECT_EQ((*others)->resize(7 * kMiB).code(), ErrorCode::kDoesNotFit);
  EXPECT_TRUE((*others)->resize(6 * kMiB).ok());
  (*weights)->shrink(kMiB, 9 * kMiB);
  EXPECT_EQ(other.spare_bytes(), 9 * kMiB);
  EXPECT_TRUE((*others)->resize(11 * kMiB).ok());
  EXPECT_EQ(mine.used_bytes(), 12 * kMiB);
  EXPECT_EQ(mine.spare_bytes(), 4 * kMiB) << "only what is in the way goes";
  EXPECT_TRUE((*weights)->resize(5 * kMiB).ok());
}

}  // namespace
}  // namespace tessera

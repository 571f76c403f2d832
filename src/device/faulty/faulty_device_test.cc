#include "device/faulty/faulty_device.h"

#include <gtest/gtest.h>

#include "device/cpu/cpu_device.h"
#include "device/null/null_device.h"
#include "device/test_kernels.h"

namespace tessera {
namespace {

std::unique_ptr<FaultyDevice> faulty_null(const FaultPlan& plan) {
  auto inner = NullDevice::create({});
  EXPECT_TRUE(inner.ok());
  return std::make_unique<FaultyDevice>(std::move(inner).value(), plan);
}

// What the commands of submit_work() add up to: b and c after `n` of its 8 commands.
struct Work {
  std::vector<uint64_t> a = std::vector<uint64_t>(16, 1);
  std::vector<uint64_t> b = std::vector<uint64_t>(16, 0);
  int n_calls = 0;

  // Commands 0 to 7: three kernels, a host call, three kernels, a host call.
  void submit(Queue& queue) {
    const auto kernels = test::list(CommandList(3, test::mix(a.data(), b.data(), 16)));
    for (int i = 0; i < 2; ++i) {
      queue.submit(kernels, {});
      queue.submit_host([this] {
        ++n_calls;
        return Status();
      });
    }
  }
  static uint64_t expected_b(int64_t n_done) {
    uint64_t value = 0;
    for (int64_t i = 0; i < n_done; ++i) {
      value = i % 4 == 3 ? value : value * 3 + 1;
    }
    return value;
  }
};

TEST(FaultyDevice, FailsAtEveryCommand) {
  for (const bool die : {false, true}) {
    for (int64_t n = 0; n <= 8; ++n) {
      SCOPED_TRACE(testing::Message() << (die ? "die" : "fail") << " at " << n);
      auto inner = make_cpu_devices({.n_threads = 1});
      ASSERT_TRUE(inner.ok());
      FaultPlan plan;
      (die ? plan.die_at_command : plan.fail_at_command) = n;
      FaultyDevice device(std::move((*inner)[0]), plan);
      Work work;
      work.submit(device.compute_queue());
      const Status status = device.compute_queue().synchronize();
      EXPECT_EQ(device.counts().n_commands, 8);
      EXPECT_EQ(work.b, std::vector<uint64_t>(16, Work::expected_b(n)));
      EXPECT_EQ(work.n_calls, n / 4);
      auto range = device.reserve(4096, "kv");
      ASSERT_TRUE(range.ok());
      if (n == 8) {
        EXPECT_TRUE(status.ok()) << "no such command";
        continue;
      }
      EXPECT_EQ(status.code(), die ? ErrorCode::kDeviceLost : ErrorCode::kInternal);
      EXPECT_NE(status.message().find("command " + std::to_string(n) + (n % 4 == 3 ? " (host call)" : " (mix)")),
                std::string::npos)
          << status.message();
      EXPECT_EQ((*range)->resize(4096).code(), die ? ErrorCode::kDeviceLost : ErrorCode::kOk);
    }
  }
}

// What fails on a further queue poisons that one; commands are counted over all.
TEST(FaultyDevice, FurtherQueuesFailAlone) {
  for (const bool die : {false, true}) {
    auto inner = make_cpu_devices({.n_threads = 1});
    ASSERT_TRUE(inner.ok());
    FaultyDevice device(std::move((*inner)[0]), {});
    device.arm(die ? FaultPlan{.die_at_command = 9} : FaultPlan{.fail_at_command = 9});
    Work work;
    work.submit(device.compute_queue());
    EXPECT_TRUE(device.compute_queue().synchronize().ok());
    auto further = device.make_queue();
    ASSERT_TRUE(further.ok());
    Work beside;
    beside.submit(**further);
    EXPECT_EQ((*further)->synchronize().code(), die ? ErrorCode::kDeviceLost : ErrorCode::kInternal);
    EXPECT_EQ(beside.b, std::vector<uint64_t>(16, Work::expected_b(1)));
    EXPECT_EQ(device.counts().n_commands, 16);
    work.submit(device.compute_queue());
    EXPECT_EQ(device.compute_queue().synchronize().code(), die ? ErrorCode::kDeviceLost : ErrorCode::kOk);
    EXPECT_EQ(work.n_calls, die ? 2 : 4);
    EXPECT_EQ(device.make_queue().status().code(), die ? ErrorCode::kDeviceLost : ErrorCode::kOk);
    device.arm({});
    EXPECT_EQ(device.counts().n_commands, 0);
  }
}

// So does whatever is tried again on a fresh queue.
TEST(FaultyDevice, FailsFromACommandOn) {
  auto inner = make_cpu_devices({.n_threads = 1});
  ASSERT_TRUE(inner.ok());
  FaultyDevice device(std::move((*inner)[0]), {.fail_from_command = 9});
  Work work;
  work.submit(device.compute_queue());
  EXPECT_TRUE(device.compute_queue().synchronize().ok());
  for (const int64_t n_done : {1, 0}) {
    auto further = device.make_queue();
    ASSERT_TRUE(further.ok());
    Work beside;
    beside.submit(**further);
    EXPECT_EQ((*further)->synchronize().code(), ErrorCode::kInternal);
    EXPECT_EQ(beside.b, std::vector<uint64_t>(16, Work::expected_b(n_done)));
  }
  auto range = device.reserve(4096, "kv");
  ASSERT_TRUE(range.ok());
  EXPECT_TRUE((*range)->resize(4096).ok());
}

TEST(FaultyDevice, FailsAtEveryGrowth) {
  for (int64_t n = 0; n < 3; ++n) {
    FaultPlan plan;
    plan.fail_growth_at = n;
    const auto device = faulty_null(plan);
    auto weights = device->reserve(1 << 20, "weights");
    auto kv = device->reserve(1 << 20, "kv");
    ASSERT_TRUE(weights.ok() && kv.ok());
    std::vector<ErrorCode> codes;
    codes.push_back((*weights)->resize(1000).code());
    codes.push_back((*kv)->resize(2000).code());
    EXPECT_TRUE((*kv)->resize(0).ok()) << "giving back is no growth";
    codes.push_back((*kv)->resize(3000).code());
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(codes[static_cast<size_t>(i)], i == n ? ErrorCode::kOutOfMemory : ErrorCode::kOk);
    }
    EXPECT_EQ(device->counts().n_growths, 3);
    EXPECT_EQ(device->used_bytes(), (n == 0 ? 0U : 1000U) + (n == 2 ? 0U : 3000U));
  }
}

TEST(FaultyDevice, DelaysFollowTheSeedAndChangeNoResult) {
  const auto delays = [](uint64_t seed, double probability) {
    FaultPlan plan;
    plan.seed = seed;
    plan.delay_probability = probability;
    plan.max_delay_us = 3;
    auto inner = make_cpu_devices({.n_threads = 1});
    FaultyDevice device(std::move((*inner)[0]), plan);
    Work work;
    for (int i = 0; i < 25; ++i) {
      work.b.assign(16, 0);
      work.submit(device.compute_queue());
      EXPECT_TRUE(device.compute_queue().synchronize().ok());
      EXPECT_EQ(work.b, std::vector<uint64_t>(16, Work::expected_b(8)));
    }
    EXPECT_EQ(device.counts().n_commands, 200);
    return device.counts().n_delays;
  };
  EXPECT_EQ(delays(1, 0.0), 0);
  EXPECT_EQ(delays(1, 1.0), 200);
  EXPECT_EQ(delays(1, 0.5), delays(1, 0.5));
  EXPECT_GT(delays(1, 0.5), 50);
  EXPECT_LT(delays(1, 0.5), 150);
}

TEST(FaultyDevice, IsTheInnerDeviceOtherwise) {
  const auto device = faulty_null({});
  EXPECT_EQ(device->info().name, "null:0");
  EXPECT_EQ(device->budget_bytes(), NullDeviceOptions().budget_bytes);
  device->compute_queue().submit(nullptr, {});
  EXPECT_TRUE(device->compute_queue().synchronize().ok());
}

}  // namespace
}  // namespace tessera

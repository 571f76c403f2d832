// Order, events and poison, on every kind of CPU device: own teams, a shared team, and behind the faulty decorator.

#include <atomic>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "device/cpu/cpu_device.h"
#include "device/faulty/faulty_device.h"
#include "device/host_queue.h"
#include "device/test_kernels.h"

namespace tessera {
namespace {

using test::copy;
using test::list;
using test::mix;

struct QueueCase {
  int n_devices;
  int n_threads;
  bool faulty;
};

std::vector<std::unique_ptr<Device>> make_devices(const QueueCase& c, uint64_t seed) {
  CpuDeviceOptions options;
  options.names.clear();
  for (int i = 0; i < c.n_devices; ++i) {
    options.names.push_back("cpu:" + std::to_string(i));
    options.budget_bytes.push_back(16 << 20);
  }
  options.n_threads = c.n_threads;
  auto made = make_cpu_devices(options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  auto devices = std::move(made).value();
  if (c.faulty) {
    for (auto& device : devices) {
      FaultPlan plan;
      plan.seed = seed++;
      plan.delay_probability = 0.2;
      plan.max_delay_us = 100;
      device = std::make_unique<FaultyDevice>(std::move(device), plan);
    }
  }
  return devices;
}

Status failure(const char* what) {
  return {ErrorCode::kIo, what};
}

/// Holds queues up until it is opened.
class Gate {
 public:
  std::function<Status()> pass() {
    return [this] {
      counter_.wait_past(0, 0);
      return Status();
    };
  }
  void open() { counter_.advance(); }

 private:
  WaitCounter counter_;
};

class QueueTest : public testing::TestWithParam<QueueCase> {
 protected:
  void SetUp() override { devices_ = make_devices(GetParam(), 1); }
  Queue& queue(size_t i) { return devices_[i]->compute_queue(); }

  std::vector<std::unique_ptr<Device>> devices_;
};
/// For cases of at least three devices.
class QueuesTest : public QueueTest {};

TEST_P(QueueTest, RunsInOrder) {
  std::vector<int> seen;
  std::vector<uint64_t> a(100, 1);
  std::vector<uint64_t> b(100, 2);
  std::vector<uint64_t> c(100, 0);
  const auto both = list({mix(a.data(), b.data(), 100), copy(b.data(), c.data(), 800), mix(c.data(), a.data(), 100)});
  for (int i = 0; i < 20; ++i) {
    queue(0).submit(both, {});
    queue(0).submit_host([&seen, i, value = &c[3]] {
      seen.push_back(i);
      return *value != 0 ? Status() : failure("the copy did not run before");
    });
  }
  EXPECT_TRUE(queue(0).synchronize().ok());
  ASSERT_EQ(seen.size(), 20U);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  std::vector<uint64_t> x(100, 1);
  std::vector<uint64_t> y(100, 2);
  for (int i = 0; i < 20; ++i) {
    test::run_alone(mix(x.data(), y.data(), 100));
    test::run_alone(mix(y.data(), x.data(), 100));
  }
  EXPECT_EQ(a, x);
  EXPECT_EQ(b, y);
}

TEST_P(QueueTest, SubmittingNeverBlocksAndEmptyWorkIsDone) {
  Gate gate;
  queue(0).submit_host(gate.pass());
  queue(0).submit(nullptr, {});
  queue(0).submit(list({}), {});
  std::vector<uint64_t> a(8, 1);
  std::vector<uint64_t> b(8, 0);
  queue(0).submit(list({mix(a.data(), b.data(), 8)}), {});
  const Event event = queue(0).record();
  EXPECT_FALSE(event.passed());
  gate.open();
  event.wait();
  EXPECT_TRUE(event.passed());
  EXPECT_EQ(b, a);
  EXPECT_TRUE(Event().passed());
  EXPECT_TRUE(queue(0).synchronize().ok());
}

// Without the wait the second queue runs at once and sees the old value; with it, the new one.
TEST_P(QueuesTest, OnlyAnEventOrdersTwoQueues) {
  std::vector<uint64_t> source(64, 5);
  std::vector<uint64_t> target(64, 0);
  std::vector<uint64_t> early(64, 9);
  std::vector<uint64_t> late(64, 9);
  Gate gate;
  queue(0).submit_host(gate.pass());
  queue(0).submit(list({copy(source.data(), target.data(), 512)}), {});
  const Event written = queue(0).record();
  queue(1).submit(list({copy(target.data(), early.data(), 512)}), {});
  EXPECT_TRUE(queue(1).synchronize().ok()) << "a queue that waits for nobody is not held up";
  queue(1).wait(written);
  queue(1).submit(list({copy(target.data(), late.data(), 512)}), {});
  const Event read = queue(1).record();
  EXPECT_FALSE(read.passed());
  gate.open();
  EXPECT_TRUE(queue(1).synchronize().ok());
  EXPECT_EQ(early, std::vector<uint64_t>(64, 0));
  EXPECT_EQ(late, source);
}

TEST_P(QueueTest, FirstFailureSkipsWhatFollowsAndStays) {
  int n_calls = 0;
  std::vector<uint64_t> a(8, 1);
  std::vector<uint64_t> b(8, 1);
  const Event before = queue(0).record();
  queue(0).submit_host([] { return failure("first"); });
  queue(0).submit_host([&] {
    ++n_calls;
    return failure("second");
  });
  queue(0).submit(list({mix(a.data(), b.data(), 8)}), {});
  const Event after = queue(0).record();
  after.wait();
  EXPECT_TRUE(before.passed());
  EXPECT_EQ(queue(0).synchronize().message(), "first");
  EXPECT_EQ(queue(0).synchronize().code(), ErrorCode::kIo);
  EXPECT_EQ(n_calls, 0);
  EXPECT_EQ(b, std::vector<uint64_t>(8, 1));
}

TEST_P(QueuesTest, FailureFollowsEventsAndOnlyThem) {
  const Event good = queue(0).record();
  Gate gate;
  queue(0).submit_host(gate.pass());
  queue(0).submit_host([] { return failure("origin"); });
  const Event bad = queue(0).record();
  bool ran = false;
  queue(1).wait(bad);  // before the failure happened
  queue(1).submit_host([&] {
    ran = true;
    return Status();
  });
  const Event spread = queue(1).record();
  queue(2).wait(good);
  gate.open();
  EXPECT_EQ(queue(1).synchronize().message(), "origin");
  EXPECT_FALSE(ran);
  EXPECT_TRUE(queue(2).synchronize().ok()) << "what passed before the failure carries none";
  spread.wait();
  queue(2).wait(spread);  // after the failure, through a second queue
  EXPECT_EQ(queue(2).synchronize().message(), "origin");
}

TEST_P(QueueTest, ManyThreadsMayWait) {
  Gate gate;
  queue(0).submit_host(gate.pass());
  const Event event = queue(0).record();
  std::atomic<int> n_done = 0;
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&, i] {
      if (i % 2 == 0) {
        event.wait();
        n_done += event.passed() ? 1 : 0;
      } else {
        n_done += queue(0).synchronize().ok() ? 1 : 0;
      }
    });
  }
  gate.open();
  for (std::thread& waiter : waiters) {
    waiter.join();
  }
  EXPECT_EQ(n_done, 4);
}

TEST_P(QueuesTest, ClosingAbandonsWithoutHanging) {
  // Device 0 waits for device 1, which waits for a gate that opens only after device 0 is gone.
  auto gate = std::make_shared<Gate>();
  std::atomic<bool> ran = false;
  queue(1).submit_host([gate] { return gate->pass()(); });
  queue(0).wait(queue(1).record());
  queue(0).submit_host([&] {
    ran = true;
    return Status();
  });
  const Event abandoned = queue(0).record();
  queue(1).wait(abandoned);
  devices_[0].reset();
  EXPECT_TRUE(abandoned.passed());
  EXPECT_FALSE(ran);
  gate->open();
  EXPECT_EQ(queue(1).synchronize().code(), ErrorCode::kCancelled);
}

TEST_P(QueueTest, WorkIsReleasedBeforeItsEventPasses) {
  auto held = std::make_shared<std::vector<uint64_t>>(4, 1);
  const std::weak_ptr<std::vector<uint64_t>> watch = held;
  Gate before;  // so that the queue takes the rest at once
  Gate after;
  queue(0).submit_host(before.pass());
  queue(0).submit_host([held] { return Status(); });
  held.reset();
  const Event event = queue(0).record();
  queue(0).submit_host(after.pass());
  before.open();
  event.wait();
  EXPECT_TRUE(watch.expired());
  after.open();
  EXPECT_TRUE(queue(0).synchronize().ok());
}

// Random work over all devices with exactly the waits that reads and writes call for, against the same work in
// sequence. A lost order, wake-up or wait shows as a wrong number, a hang, or a race under tsan.
class Dag {
 public:
  static constexpr size_t kBuffers = 8;
  static constexpr int64_t kN = 96;

  explicit Dag(std::vector<std::unique_ptr<Device>>& devices) : devices_(devices) {
    for (size_t i = 0; i < kBuffers; ++i) {
      auto range = devices[i % devices.size()]->reserve(1 << 16, "buffer");
      EXPECT_TRUE(range.ok());
      EXPECT_TRUE((*range)->resize(kN * sizeof(uint64_t)).ok());
      buffers_.push_back(std::move(range).value());
    }
  }

  void run(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::vector<uint64_t>> expected(kBuffers, std::vector<uint64_t>(kN));
    for (size_t i = 0; i < kBuffers; ++i) {
      for (int64_t j = 0; j < kN; ++j) {
        data(i)[j] = expected[i][static_cast<size_t>(j)] = random();
      }
      writer_[i] = {};
      readers_[i].clear();
    }
    for (int op = 0; op < 40; ++op) {
      const size_t device = random() % devices_.size();
      const size_t in = random() % kBuffers;
      const size_t out = (in + 1 + random() % (kBuffers - 1)) % kBuffers;
      const bool is_copy = random() % 3 == 0;
      CommandList commands;
      for (uint64_t i = 0; i < 1 + random() % 3; ++i) {
        commands.push_back(is_copy ? copy(data(in), data(out), kN * 8) : mix(data(in), data(out), kN, 3 + 2 * i));
        if (is_copy) {
          expected[out] = expected[in];
        } else {
          test::run_alone(mix(expected[in].data(), expected[out].data(), kN, 3 + 2 * i));
        }
      }
      submit(device, in, out, list(std::move(commands)));
    }
    for (auto& device : devices_) {
      ASSERT_TRUE(device->compute_queue().synchronize().ok());
    }
    for (size_t i = 0; i < kBuffers; ++i) {
      ASSERT_EQ(std::vector<uint64_t>(data(i), data(i) + kN), expected[i]) << "seed " << seed << ", buffer " << i;
    }
  }

 private:
  struct Use {
    size_t device = 0;
    Event event;
  };

  uint64_t* data(size_t buffer) { return reinterpret_cast<uint64_t*>(buffers_[buffer]->base()); }

  void submit(size_t device, size_t in, size_t out, std::shared_ptr<const CommandList> work) {
    Queue& queue = devices_[device]->compute_queue();
    const auto wait = [&](const Use& use) {
      if (use.device != device) {
        queue.wait(use.event);
      }
    };
    wait(writer_[in]);
    wait(writer_[out]);
    for (const Use& reader : readers_[out]) {
      wait(reader);
    }
    queue.submit(std::move(work), {});
    const Use use{device, queue.record()};
    readers_[in].push_back(use);
    writer_[out] = use;
    readers_[out].clear();
  }

  std::vector<std::unique_ptr<Device>>& devices_;
  std::vector<std::unique_ptr<MemoryRange>> buffers_;
  Use writer_[kBuffers];
  std::vector<Use> readers_[kBuffers];
};

TEST_P(QueueTest, RandomWorkEqualsTheSameWorkInSequence) {
  Dag dag(devices_);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    ASSERT_NO_FATAL_FAILURE(dag.run(seed));
  }
}

std::string case_name(const testing::TestParamInfo<QueueCase>& info) {
  return std::to_string(info.param.n_devices) + "devices" + std::to_string(info.param.n_threads) + "threads" +
         (info.param.faulty ? "Delayed" : "");
}

constexpr QueueCase kSeveralDevices[] = {{3, 3, false}, {3, 7, false}, {3, 3, true}, {5, 1, false},
                                         {5, 2, false}, {5, 2, true},  {5, 7, true}};

INSTANTIATE_TEST_SUITE_P(OneDevice, QueueTest, testing::Values(QueueCase{1, 1, false}, QueueCase{1, 2, true}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(SeveralDevices, QueueTest, testing::ValuesIn(kSeveralDevices), case_name);
INSTANTIATE_TEST_SUITE_P(SeveralDevices, QueuesTest, testing::ValuesIn(kSeveralDevices), case_name);

TEST(SharedTeam, FiveDevicesOnTwoThreadsThousandTimes) {
  for (uint64_t round = 0; round < 10; ++round) {
    std::vector<std::unique_ptr<Device>> devices = make_devices({5, 2, round % 2 == 1}, 100 * round);
    Dag dag(devices);
    for (uint64_t seed = 0; seed < 100; ++seed) {
      ASSERT_NO_FATAL_FAILURE(dag.run(1000 + 100 * round + seed));
    }
  }
}

TEST(CpuDevices, DivideTheThreads) {
  const auto threads_of = [](int n_devices, int n_threads) {
    std::vector<int> threads;
    for (const auto& device : make_devices({n_devices, n_threads, false}, 0)) {
      threads.push_back(device->info().n_threads);
    }
    return threads;
  };
  EXPECT_EQ(threads_of(1, 3), std::vector<int>({3}));
  EXPECT_EQ(threads_of(3, 7), std::vector<int>({3, 2, 2}));
  EXPECT_EQ(threads_of(2, 2), std::vector<int>({1, 1}));
  EXPECT_EQ(threads_of(3, 2), std::vector<int>({2, 2, 2})) << "one team for all";
}

TEST(CpuDevices, DescribeThemselvesAndShareTheMemory) {
  CpuDeviceOptions options;
  options.names = {"cpu:0", "cpu:7"};
  options.kernel_class = "cpu-fast";
  options.budget_bytes = {0, 4096};
  const auto devices = make_cpu_devices(options);
  ASSERT_TRUE(devices.ok());
  EXPECT_EQ((*devices)[1]->info().name, "cpu:7");
  EXPECT_EQ((*devices)[1]->info().kernel_class, "cpu-fast");
  EXPECT_EQ((*devices)[1]->budget_bytes(), 4096U);
  EXPECT_GT((*devices)[0]->budget_bytes(), 1U << 20);
  options.n_threads = -1;
  EXPECT_EQ(make_cpu_devices(options).status().code(), ErrorCode::kInvalidArgument);
  options.n_threads = 1;
  options.budget_bytes = {1};
  EXPECT_EQ(make_cpu_devices(options).status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tessera

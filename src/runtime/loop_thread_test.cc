#include "runtime/loop_thread.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace tessera {
namespace {

TEST(LoopThread, RunsCallsOnOneThreadAndReturnsTheirStatus) {
  const auto loop_owner = LoopThread::start().value();
  LoopThread& loop = *loop_owner;
  EXPECT_FALSE(loop.is_current());
  std::thread::id first;
  EXPECT_TRUE(loop.run([&] {
                    first = std::this_thread::get_id();
                    EXPECT_TRUE(loop.is_current());
                    return Status();
                  })
                  .ok());
  EXPECT_NE(first, std::this_thread::get_id());
  const Status failed = loop.run([&] {
    EXPECT_EQ(std::this_thread::get_id(), first);
    return Status(ErrorCode::kBusy, "later");
  });
  EXPECT_EQ(failed.code(), ErrorCode::kBusy);
  EXPECT_EQ(failed.message(), "later");
}

TEST(LoopThread, RunsNestedCallsInline) {
  const auto loop_owner = LoopThread::start().value();
  LoopThread& loop = *loop_owner;
  const auto other_owner = LoopThread::start().value();
  LoopThread& other = *other_owner;
  std::vector<int> order;
  EXPECT_TRUE(loop.run([&] {
                    order.push_back(1);
                    EXPECT_TRUE(loop.run([&] {
                                      order.push_back(2);
                                      return Status();
                                    })
                                    .ok());
                    order.push_back(3);
                    // Another model's loop is another thread.
                    return other.run([&] {
                      EXPECT_FALSE(loop.is_current());
                      order.push_back(4);
                      return Status();
                    });
                  })
                  .ok());
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
}

TEST(LoopThread, SerialisesManyCallers) {
  const auto loop_owner = LoopThread::start().value();
  LoopThread& loop = *loop_owner;
  int64_t sum = 0;  // no lock: only the loop thread touches it
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      for (int j = 0; j < 500; ++j) {
        EXPECT_TRUE(loop.run([&] {
                          ++sum;
                          return Status();
                        })
                        .ok());
      }
    });
  }
  for (std::thread& t : callers) {
    t.join();
  }
  EXPECT_EQ(sum, 8 * 500);
}

TEST(LoopThread, FinishesWaitingCallsWhenStoppedAndRefusesLaterOnes) {
  for (int round = 0; round < 50; ++round) {
    const auto loop_owner = LoopThread::start().value();
    LoopThread& loop = *loop_owner;
    std::atomic<int> n_ran = 0;
    std::atomic<int> n_ok = 0;
    std::atomic<int> n_cancelled = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 20; ++j) {
          const Status status = loop.run([&] {
            ++n_ran;
            return Status();
          });
          ++(status.ok() ? n_ok : n_cancelled);
          if (!status.ok()) {
            EXPECT_EQ(status.code(), ErrorCode::kCancelled);
          }
        }
      });
    }
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] { loop.stop(); });
    }
    for (std::thread& t : threads) {
      t.join();
    }
    EXPECT_EQ(n_ok + n_cancelled, 80);
    EXPECT_EQ(n_ran, n_ok);
    EXPECT_EQ(loop.run([] { return Status(); }).code(), ErrorCode::kCancelled);
  }
}

TEST(LoopThread, RunsAloneOrSaysWhyNot) {
  const auto loop = LoopThread::start().value();
  const auto nothing = [] { return Status(); };
  const auto in = [](int ms) { return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms); };
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(loop->run(nothing).ok());
    EXPECT_TRUE(loop->run_alone(nothing, false, {}).ok()) << "the call before has returned";
  }
  EXPECT_EQ(loop->run([&] { return loop->run_alone(nothing, true, {}); }).code(), ErrorCode::kBusy);

  std::atomic<bool> started = false;
  std::atomic<bool> go_on = false;
  std::thread other([&] {
    EXPECT_TRUE(loop->run([&] {
                      started = true;
                      while (!go_on) {
                        std::this_thread::yield();
                      }
                      return Status();
                    })
                    .ok());
  });
  while (!started) {
    std::this_thread::yield();
  }
  bool ran = false;
  const auto run = [&] {
    ran = true;
    return Status();
  };
  EXPECT_EQ(loop->run_alone(run, false, {}).code(), ErrorCode::kBusy);
  EXPECT_EQ(loop->run_alone(run, true, in(5)).code(), ErrorCode::kDeadlineExceeded);
  std::thread waiting([&] { EXPECT_TRUE(loop->run_alone(nothing, true, in(60000)).ok()); });
  go_on = true;
  other.join();
  waiting.join();
  EXPECT_FALSE(ran);
  EXPECT_TRUE(loop->run_alone(run, true, in(60000)).ok());
  EXPECT_TRUE(ran);
}

TEST(LoopThread, MayBeStoppedFromItsOwnThread) {
  const auto loop_owner = LoopThread::start().value();
  LoopThread& loop = *loop_owner;
  EXPECT_TRUE(loop.run([&] {
                    loop.stop();
                    return loop.run([] { return Status(); });  // nested calls go on until the call returns
                  })
                  .ok());
  EXPECT_EQ(loop.run([] { return Status(); }).code(), ErrorCode::kCancelled);
}

}  // namespace
}  // namespace tessera

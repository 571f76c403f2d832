#include "base/threads.h"

#include <csignal>
#include <gtest/gtest.h>
#include <pthread.h>
#include <vector>

namespace tessera {
namespace {

TEST(Threads, CountsAtLeastOneAndAtMostTheMachine) {
  EXPECT_GE(hardware_threads(), 1);
  EXPECT_LE(hardware_threads(), static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(Threads, StartedThreadsBlockSignalsAndCarryTheirName) {
  char name[16] = {};
  bool blocked = false;
  auto thread = start_thread("a-name-longer-than-fifteen", [&] {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = sigismember(&mask, SIGINT) == 1;
  });
  ASSERT_TRUE(thread.ok());
  thread->join();
  EXPECT_TRUE(blocked);
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGINT), 0) << "the caller's own mask is unchanged";

  WaitCounter leave;
  auto named = start_thread("a-name-longer-than-fifteen", [&] { leave.wait_past(0, 0); });
  ASSERT_TRUE(named.ok());
  pthread_getname_np(named->native_handle(), name, sizeof(name));
  leave.advance();
  named->join();
  EXPECT_STREQ(name, "a-name-longer-t");
}

TEST(SpinBudget, SleepsMoreOftenTheMoreItSpinsInVain) {
  SpinBudget budget(50);
  const auto skips_after_vain_spin = [&] {
    EXPECT_EQ(budget.next_us(), 50);
    budget.spun(true);
    int n_skips = 0;
    for (SpinBudget copy = budget; copy.next_us() == 0; ++n_skips) {
      budget.next_us();
    }
    return n_skips;
  };
  for (const int expected : {1, 2, 4, 8, 16, 32, 64, 64}) {
    EXPECT_EQ(skips_after_vain_spin(), expected);
  }
  EXPECT_EQ(budget.next_us(), 50);
  budget.spun(false);
  EXPECT_EQ(budget.next_us(), 50);
  budget.spun(false);
  EXPECT_EQ(skips_after_vain_spin(), 1) << "forgiven";
}

TEST(WaitCounter, SpendsItsBudget) {
  WaitCounter counter;
  SpinBudget budget(1);
  counter.wait_past(0, budget, std::chrono::microseconds(1));
  EXPECT_EQ(budget.next_us(), 0) << "that spin was in vain";
  EXPECT_EQ(budget.next_us(), 1);
  counter.advance();
  EXPECT_EQ(counter.wait_past(0, budget), 1U);
  EXPECT_EQ(budget.next_us(), 1) << "no spin was needed";

  SpinBudget patient(60'000'000);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    counter.advance();
  });
  EXPECT_EQ(counter.wait_past(1, patient), 2U);
  EXPECT_NE(patient.next_us(), 0) << "that spin paid";
  other.join();
}

TEST(WaitCounter, TimesOutWithoutAnAdvance) {
  WaitCounter counter;
  EXPECT_EQ(counter.wait_past(0, 0, std::chrono::milliseconds(1)), 0U);
  EXPECT_EQ(counter.wait_past(0, 10, std::chrono::milliseconds(1)), 0U);
  counter.advance();
  EXPECT_EQ(counter.wait_past(0, 0), 1U);
}

// Two threads hand a plain integer back and forth; a lost wake-up hangs, a missing order is a data race under tsan.
TEST(WaitCounter, HandsOverWhatWasWrittenBefore) {
  for (const int spin_us : {0, 20}) {
    WaitCounter to_other;
    WaitCounter back;
    int value = 0;
    constexpr uint32_t kRounds = 2000;
    std::thread other([&] {
      for (uint32_t round = 0; round < kRounds; ++round) {
        to_other.wait_past(round, spin_us);
        ++value;
        back.advance();
      }
    });
    for (uint32_t round = 0; round < kRounds; ++round) {
      ++value;
      to_other.advance();
      back.wait_past(round, spin_us);
    }
    other.join();
    EXPECT_EQ(value, static_cast<int>(2 * kRounds));
  }
}

TEST(WaitCounter, WakesEverySleeper) {
  WaitCounter counter;
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 5; ++i) {
    sleepers.emplace_back([&] { counter.wait_past(0, 0); });
  }
  counter.advance();
  for (std::thread& sleeper : sleepers) {
    sleeper.join();
  }
  EXPECT_EQ(counter.load(), 1U);
}

}  // namespace
}  // namespace tessera

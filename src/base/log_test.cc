#include "base/log.h"

#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

namespace tessera {
namespace {

TEST(Log, LevelsBelowTheLeastAreDropped) {
  std::vector<std::string> seen;
  const Log log(
      [&](LogLevel level, std::string_view message) {
        seen.push_back(std::string(log_level_name(level)) + " " + std::string(message));
      },
      LogLevel::kInfo);
  log.detail("a");
  log.info("b");
  log.warning("c");
  EXPECT_EQ(seen, (std::vector<std::string>{"info b", "warning c"}));
  EXPECT_FALSE(log.wants(LogLevel::kDetail));
  EXPECT_TRUE(log.wants(LogLevel::kInfo));
}

TEST(Log, WithoutASinkEverythingIsDropped) {
  const Log log;
  log.warning("nobody hears this");
  EXPECT_FALSE(log.wants(LogLevel::kWarning));
}

TEST(Log, CopiesOnManyThreadsShareOneLock) {
  size_t n_seen = 0;  // plain: the thread sanitizer sees a missing lock, and lost counts show without it
  const Log log([&](LogLevel, std::string_view) { ++n_seen; }, LogLevel::kDetail);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([copy = log] {
      for (int i = 0; i < 5000; ++i) {
        copy.info("x");
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(n_seen, 20000u);
}

TEST(Log, StandardErrorGetsWholeLines) {
  testing::internal::CaptureStderr();
  const Log log = stderr_log(LogLevel::kInfo);
  log.detail("no");
  log.info("loaded 12 tensors");
  log.warning("odd file");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "loaded 12 tensors\nwarning: odd file\n");
}

}  // namespace
}  // namespace tessera

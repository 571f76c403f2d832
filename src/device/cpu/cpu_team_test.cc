#include "device/cpu/cpu_team.h"

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <numeric>
#include <span>
#include <vector>

#include "device/test_kernels.h"

namespace tessera {
namespace {

using test::list;
using test::mix;

class CpuTeamTest : public testing::TestWithParam<int> {
 protected:
  std::shared_ptr<CpuTeam> start() {
    // Spinning also where threads outnumber cores: slow, and must still be right.
    auto team = CpuTeam::start("team", GetParam(), GetParam() % 2 == 0 ? 20 : 0);
    EXPECT_TRUE(team.ok());
    return std::move(team).value();
  }
};

TEST_P(CpuTeamTest, EveryThreadRunsEveryCommandOnce) {
  const auto team = start();
  static std::atomic<uint64_t> calls[8];
  for (auto& count : calls) {
    count = 0;
  }
  const KernelFn kernel = [](void* backend, const void*, const LaunchSizes& sizes) {
    const auto& launch = *static_cast<const CpuLaunch*>(backend);
    if (sizes.n_tokens == 17) {
      calls[launch.thread] += static_cast<uint64_t>(launch.n_threads);
    }
  };
  const CommandList commands(10, Command{.kernel = kernel, .args = nullptr, .copy = {}, .name = "count"});
  for (int i = 0; i < 20; ++i) {
    team->run(commands, {.n_tokens = 17});
  }
  for (int i = 0; i < GetParam(); ++i) {
    EXPECT_EQ(calls[i], static_cast<uint64_t>(200 * GetParam())) << "thread " << i;
  }
  EXPECT_EQ(calls[GetParam()], 0U);
}

TEST_P(CpuTeamTest, EveryCommandCountsWhatIsTakenFromZero) {
  const auto team = start();
  static std::atomic<int> n_wrong;
  n_wrong = 0;
  const KernelFn kernel = [](void* backend, const void*, const LaunchSizes&) {
    const auto& launch = *static_cast<const CpuLaunch*>(backend);
    n_wrong += launch.taken->fetch_add(1) < launch.n_threads ? 0 : 1;
  };
  const CommandList commands(200, Command{.kernel = kernel, .args = nullptr, .copy = {}, .name = "take"});
  team->run(commands, {.n_tokens = 1});
  EXPECT_EQ(n_wrong, 0);
}

// Each command reads what other threads wrote in the one before; without the barrier bits differ or tsan reports.
TEST_P(CpuTeamTest, CommandsSeeAllEffectsOfTheOneBefore) {
  const auto team = start();
  constexpr int64_t kN = 1000;
  std::vector<uint64_t> a(kN);
  std::iota(a.begin(), a.end(), 1);
  std::vector<uint64_t> b(kN, 7);
  std::vector<uint64_t> expected_a = a;
  std::vector<uint64_t> expected_b = b;
  CommandList commands;
  CommandList expected;
  for (int i = 0; i < 50; ++i) {
    commands.push_back(mix(a.data(), b.data(), kN));
    commands.push_back(mix(b.data(), a.data(), kN));
    expected.push_back(mix(expected_a.data(), expected_b.data(), kN));
    expected.push_back(mix(expected_b.data(), expected_a.data(), kN));
  }
  for (int round = 0; round < 10; ++round) {
    team->run(commands, {});
    for (const Command& command : expected) {
      test::run_alone(command);
    }
  }
  EXPECT_EQ(a, expected_a);
  EXPECT_EQ(b, expected_b);
}

TEST_P(CpuTeamTest, CallersTakeTurns) {
  const auto team = start();
  constexpr int64_t kN = 64;
  std::vector<std::vector<uint64_t>> values(4, std::vector<uint64_t>(kN, 1));
  const std::vector<uint64_t> ones(kN, 1);
  static std::atomic<int> running;
  static std::atomic<bool> overlapped;
  running = 0;
  overlapped = false;
  std::vector<std::thread> callers;
  for (auto& value : values) {
    callers.emplace_back([&, out = value.data()] {
      const Command enter{.kernel =
                              [](void* backend, const void*, const LaunchSizes&) {
                                if (static_cast<const CpuLaunch*>(backend)->thread == 0 && ++running != 1) {
                                  overlapped = true;
                                }
                              },
                          .args = nullptr,
                          .copy = {},
                          .name = "enter"};
      const Command leave{.kernel =
                              [](void* backend, const void*, const LaunchSizes&) {
                                if (static_cast<const CpuLaunch*>(backend)->thread == 0) {
                                  --running;
                                }
                              },
                          .args = nullptr,
                          .copy = {},
                          .name = "leave"};
      const CommandList commands = {enter, mix(ones.data(), out, kN), mix(ones.data(), out, kN), leave};
      for (int i = 0; i < 100; ++i) {
        team->run(commands, {});
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_FALSE(overlapped);
  uint64_t expected = 1;
  for (int i = 0; i < 200; ++i) {
    expected = expected * 3 + 1;
  }
  for (const auto& value : values) {
    EXPECT_EQ(value, std::vector<uint64_t>(kN, expected));
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, CpuTeamTest, testing::Values(1, 2, 3, 7));

// A rectangle inside a larger one, for row counts and widths around the number of threads and the copy's grain.
TEST(CpuCopy, MovesExactlyTheRectangle) {
  for (const int n_threads : {1, 2, 3, 7}) {
    for (const uint64_t rows : {0, 1, 2, 5, 8}) {
      for (const uint64_t width : {0, 1, 63, 4096, 9000}) {
        for (const uint64_t gap : {0, 3}) {
          SCOPED_TRACE(testing::Message() << n_threads << " threads, " << rows << " x " << width << ", gap " << gap);
          const uint64_t pitch = width + gap;
          std::vector<unsigned char> src(rows * pitch + 16);
          for (size_t i = 0; i < src.size(); ++i) {
            src[i] = static_cast<unsigned char>(i * 31 + i / 251);
          }
          std::vector<unsigned char> dst(rows * (pitch + gap) + 16, 0xEE);
          std::vector<unsigned char> expected = dst;
          for (uint64_t row = 0; row < rows; ++row) {
            std::copy_n(src.begin() + static_cast<long>(row * pitch), width,
                        expected.begin() + static_cast<long>(row * (pitch + gap)));
          }
          CopyArgs copy{.dst = dst.data(),
                        .src = src.data(),
                        .dst_pitch = pitch + gap,
                        .src_pitch = pitch,
                        .width = width,
                        .rows = rows};
          for (int i = 0; i < n_threads; ++i) {
            cpu_copy_share(copy, {}, {i, n_threads});
          }
          EXPECT_EQ(dst, expected);
        }
      }
    }
  }
}

TEST(CpuCopy, RowsFollowTheBatch) {
  const std::vector<int> src = {1, 2, 3, 4};
  for (const auto& [count, expected] :
       {std::pair(RowCount::kFixed, 4), {RowCount::kTokens, 3}, {RowCount::kOutputs, 1}}) {
    std::vector<int> dst(4, 0);
    cpu_copy_share(
        {.dst = dst.data(), .src = src.data(), .dst_pitch = 4, .src_pitch = 4, .width = 4, .rows = 4, .count = count},
        {.n_tokens = 3, .n_outputs = 1}, {});
    EXPECT_EQ(4 - std::count(dst.begin(), dst.end(), 0), expected);
  }
}

// Every start and length, and not a byte beside.
TEST(CpuTeam, StreamedCopiesAreWhole) {
  std::vector<unsigned char> from(200000);
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<unsigned char>(i * 31 + i / 253);
  }
  for (const size_t bytes : {0, 1, 63, 65535, 65536, 65600, 131071, 131140}) {
    for (const size_t at : {0, 1, 16, 33, 63}) {
      std::vector<unsigned char> to(bytes + 200, 0xEE);
      run_on_one_thread({test::copy(from.data() + 3, to.data() + at, bytes)}, {});
      EXPECT_TRUE(std::equal(to.begin() + static_cast<ptrdiff_t>(at), to.begin() + static_cast<ptrdiff_t>(at + bytes),
                             from.begin() + 3));
      EXPECT_EQ(std::ranges::count(to, 0xEE) - std::ranges::count(std::span(from).subspan(3, bytes), 0xEE), 200);
    }
  }
}

}  // namespace
}  // namespace tessera

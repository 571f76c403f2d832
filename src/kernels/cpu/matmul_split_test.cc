#include "kernels/cpu/matmul_split.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace tessera {
namespace {

constexpr int64_t kGroup = 16;

MatmulPanel panel_of(int64_t rows, int64_t columns) {
  return {DType::kQ8_0, nullptr, rows, columns, 0, nullptr, 0};
}

// How often each row was visited, over all panels. Every visit begins a group and ends one, or its panel.
class Visits {
 public:
  explicit Visits(const std::vector<MatmulPanel>& panels) : panels_(panels) {
    for (const MatmulPanel& panel : panels) {
      counts_.emplace_back(static_cast<size_t>(panel.rows));
    }
  }

  void add(const MatmulPanel& panel, int64_t begin, int64_t end) {
    EXPECT_EQ(begin % kGroup, 0);
    EXPECT_TRUE(end % kGroup == 0 || end == panel.rows);
    for (int64_t row = begin; row < end; ++row) {
      ++counts_[static_cast<size_t>(&panel - panels_.data())][static_cast<size_t>(row)];
    }
  }

  void expect_each_once() const {
    for (const auto& panel : counts_) {
      for (const auto& count : panel) {
        ASSERT_EQ(count, 1);
      }
    }
  }

 private:
  const std::vector<MatmulPanel>& panels_;
  std::vector<std::vector<std::atomic<int>>> counts_;
};

const std::vector<MatmulPanel> kPanels = {panel_of(1000, 64), panel_of(8, 512), panel_of(333, 256), panel_of(64, 32)};

RowLine<int64_t (*)(const MatmulPanel&)> line() {
  return {kPanels, kGroup, [](const MatmulPanel& panel) { return panel.columns; }};
}

TEST(MatmulSplit, SharesVisitEachRowOnce) {
  for (int n = 1; n <= 90; ++n) {
    Visits visits(kPanels);
    for (int part = 0; part < n; ++part) {
      visit_share(line(), part, n, [&](const auto&... args) { visits.add(args...); });
    }
    visits.expect_each_once();
  }
}

TEST(MatmulSplit, PiecesGoToWhoComesFirst) {
  for (int n = 1; n <= 7; ++n) {
    for (const int64_t piece : {1, 64, 300, 1000, 1 << 20}) {
      Visits visits(kPanels);
      std::atomic<int> taken = 0;
      std::vector<std::thread> threads;
      for (int i = 0; i < n; ++i) {
        threads.emplace_back([&, i] {
          visit_share_evenly(line(), {i, n, &taken}, piece, [&](const auto&... args) { visits.add(args...); });
        });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
      visits.expect_each_once();
    }
  }
}

TEST(MatmulSplit, OneThreadMayTakeAllPieces) {
  // The others come when nothing is left but their own shares.
  Visits visits(kPanels);
  std::atomic<int> taken = 0;
  int n_visits[2] = {};
  for (int i = 0; i < 2; ++i) {
    visit_share_evenly(line(), {i, 2, &taken}, 300, [&](const auto&... args) {
      visits.add(args...);
      ++n_visits[i];
    });
  }
  visits.expect_each_once();
  EXPECT_GT(n_visits[0], 2 * n_visits[1]);
}

}  // namespace
}  // namespace tessera

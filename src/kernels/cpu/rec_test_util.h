#pragma once
// Layers with recurrent state for kernel tests: the same numbers in any division into cuts. Tests only.

#include <gtest/gtest.h>
#include <vector>

#include "kernels/kernel_test_util.h"
#include "kernels/ops/rec_layout.h"

namespace tessera {

/// The slots of a layer that is divided at `bounds` (in groups), all cuts on one device.
class RecLayer {
 public:
  RecLayer(const RecFormat& format, std::vector<int64_t> bounds, int64_t n_slots) : format_(format) {
    for (size_t c = 0; c + 1 < bounds.size(); ++c) {
      const int64_t n_groups = bounds[c + 1] - bounds[c];
      states_.emplace_back(n_slots * rec_slot_bytes(format, n_groups));
      std::memset(states_.back().data(), 0x7F, static_cast<size_t>(states_.back().size()));  // what is left of others
      panels_.push_back({nullptr, n_groups, bounds[c] - bounds[0], bounds[c]});
    }
    columns_.resize(static_cast<size_t>(channels()));
    for (const RecPanel& panel : panels_) {
      for (int64_t i = 0; i < rec_n_segments(format_); ++i) {
        const RecSegment s = rec_segment(format_, panel, i);
        for (int64_t c = 0; c < s.size; ++c) {
          columns_[static_cast<size_t>(s.channel + c)] = panel.group_begin * rec_group_channels(format_) + s.column + c;
        }
      }
    }
  }
  [[nodiscard]] const RecFormat& format() const { return format_; }
  [[nodiscard]] std::vector<RecPanel> panels() {
    for (size_t c = 0; c < panels_.size(); ++c) {
      panels_[c].base = states_[c].data();
    }
    return panels_;
  }
  [[nodiscard]] int64_t channels() const { return format_.n_key_heads * rec_group_channels(format_); }
  [[nodiscard]] int64_t value_heads() const { return format_.n_key_heads * format_.n_rep; }
  [[nodiscard]] bool guards_intact() {
    return std::ranges::all_of(states_, [](GuardedBytes& s) { return s.guards_intact(); });
  }
  bool operator==(const RecLayer& other) const { return states_ == other.states_; }

  /// Column of a row of q, k and v that holds a channel of the layer.
  [[nodiscard]] int64_t column_of(int64_t channel) const { return columns_[static_cast<size_t>(channel)]; }
  /// Place of a value head of the layer among the device's.
  [[nodiscard]] int64_t place_of(int64_t value_head) const {
    for (const RecPanel& panel : panels_) {
      for (int64_t h = 0; h < panel.n_groups * format_.n_rep; ++h) {
        if (rec_layer_head(format_, panel, h) == value_head) {
          return panel.group_begin * format_.n_rep + h;
        }
      }
    }
    return -1;
  }

 private:
  RecFormat format_;
  std::vector<GuardedBytes> states_;
  std::vector<RecPanel> panels_;
  std::vector<int64_t> columns_;  // by channel of the layer
};

/// One micro-batch: how many new tokens each sequence (slot) has, in mixed rows.
struct RecBatch {
  std::vector<int32_t> rows;
  std::vector<RecRun> runs;
  std::vector<std::pair<int32_t, int32_t>> tokens;  // by row: run, position

  /// counts, positions: by slot.
  RecBatch(TestRandom& random, const std::vector<int32_t>& counts, const std::vector<int32_t>& positions) {
    std::vector<int32_t> left = counts;
    int32_t begin = 0;
    for (size_t s = 0; s < counts.size(); ++s) {
      if (counts[s] > 0) {
        runs.push_back({static_cast<int32_t>(s), begin, counts[s], positions[s]});
        begin += counts[s];
      }
    }
    rows.resize(static_cast<size_t>(begin));
    std::vector<int32_t> done(runs.size(), 0);
    while (std::cmp_less(tokens.size(), begin)) {
      const auto r = static_cast<size_t>(random.below(static_cast<int64_t>(runs.size())));
      if (done[r] < runs[r].n_rows) {
        rows[static_cast<size_t>(runs[r].row_begin + done[r])] = static_cast<int32_t>(tokens.size());
        tokens.emplace_back(static_cast<int32_t>(r), runs[r].position + done[r]);
        ++done[r];
      }
    }
  }
  [[nodiscard]] LaunchSizes sizes() const {
    return {static_cast<int32_t>(tokens.size()), 0, static_cast<int32_t>(runs.size())};
  }
};

/// Formats of real models' proportions and odd ones.
inline std::vector<RecFormat> rec_formats() {
  return {{2, 2, 16, 16, 4, true}, {4, 3, 32, 40, 4, true},   {4, 3, 32, 40, 4, false},
          {3, 1, 5, 7, 2, false},  {2, 2, 128, 128, 4, true}, {5, 2, 24, 33, 5, true}};
}

/// Ways to cut n groups.
inline std::vector<std::vector<int64_t>> rec_cuts(int64_t n) {
  std::vector<std::vector<int64_t>> cuts = {{0, n}, {0, 1, n}};
  if (n > 2) {
    cuts.push_back({0, 2, n - 1, n});
  }
  return cuts;
}

}  // namespace tessera

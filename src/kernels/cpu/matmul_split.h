#pragma once
// How the threads of a team share the panels of one product: by rows over all panels jointly, never by columns.

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/checked.h"
#include "device/cpu/cpu_launch.h"
#include "kernels/ops/matmul.h"

namespace tessera {

/// The rows of some panels, in whole groups of row_group, laid on one line where a group is cost(panel) (> 0) long.
template <typename Cost>
class RowLine {
 public:
  RowLine(std::span<const MatmulPanel> panels, int64_t row_group, Cost cost)
      : panels_(panels), row_group_(row_group), cost_(cost) {
    for (const MatmulPanel& panel : panels) {
      length_ += groups_of(panel) * cost(panel);
    }
  }

  [[nodiscard]] int64_t length() const { return length_; }

  /// Calls visit(panel, row_begin, row_end) for the groups that start in [begin, end).
  template <typename Visit>
  void visit(int64_t begin, int64_t end, Visit visit) const {
    int64_t before = 0;
    for (const MatmulPanel& panel : panels_) {
      const int64_t n_groups = groups_of(panel);
      const int64_t group_cost = cost_(panel);
      const auto first_from = [&](int64_t at) {
        return at <= before ? 0 : std::min(n_groups, (at - before + group_cost - 1) / group_cost);
      };
      const int64_t row_begin = first_from(begin) * row_group_;
      const int64_t row_end = std::min(first_from(end) * row_group_, panel.rows);
      if (row_begin < row_end) {
        visit(panel, row_begin, row_end);
      }
      before += n_groups * group_cost;
    }
  }

 private:
  [[nodiscard]] int64_t groups_of(const MatmulPanel& panel) const {
    return static_cast<int64_t>(div_up(static_cast<uint64_t>(panel.rows), static_cast<uint64_t>(row_group_)));
  }

  std::span<const MatmulPanel> panels_;
  int64_t row_group_;
  Cost cost_;
  int64_t length_ = 0;
};

/// Calls visit(panel, row_begin, row_end) for the rows of part `part` of `n_parts`: about 1 / n_parts of the costs. All
/// parts together visit every row once.
template <typename Cost, typename Visit>
void visit_share(const RowLine<Cost>& line, int part, int n_parts, Visit visit) {
  line.visit(line.length() * part / n_parts, line.length() * (part + 1) / n_parts, visit);
}

/// The same where threads do not progress evenly: each visits most of its part, and the ends of all parts go out in
/// pieces of about `piece` to who comes first.
template <typename Cost, typename Visit>
void visit_share_evenly(const RowLine<Cost>& line, const CpuLaunch& cpu, int64_t piece, Visit visit) {
  const int64_t part = line.length() / cpu.n_threads;
  const int64_t rest = part / 4;
  const int n_pieces = static_cast<int>(rest / piece);
  if (n_pieces < 2 || cpu.n_threads == 1 || cpu.taken == nullptr) {
    return visit_share(line, cpu.thread, cpu.n_threads, visit);
  }
  const auto part_begin = [&](int i) { return line.length() * i / cpu.n_threads; };
  const auto rest_begin = [&](int i) { return part_begin(i + 1) - rest; };
  line.visit(part_begin(cpu.thread), rest_begin(cpu.thread), visit);
  for (int taken = cpu.taken->fetch_add(1, std::memory_order_relaxed); taken < n_pieces * cpu.n_threads;
       taken = cpu.taken->fetch_add(1, std::memory_order_relaxed)) {
    const int64_t begin = rest_begin(taken % cpu.n_threads);
    const int i = taken / cpu.n_threads;
    line.visit(begin + rest * i / n_pieces, begin + rest * (i + 1) / n_pieces, visit);
  }
}

}  // namespace tessera

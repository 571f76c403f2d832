#pragma once
// How the threads of a team share the panels of one product: by rows over all panels jointly, never by columns.

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/checked.h"
#include "device/cpu/cpu_launch.h"
#include "kernels/ops/matmul.h"

namespace tessera {

/// The rows of one panel, in whole groups of row_group, as a stretch of a line where each group is group_cost (> 0)
/// long. Inlined always: kernels of every instruction set use it, and none may define it for the others (check_isa.py).
struct RowStretch {
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;  // at most begin: no rows
  };

  int64_t start = 0;  // of the first group, on the line
  int64_t n_rows = 0;
  int64_t row_group = 1;
  int64_t group_cost = 1;

  [[nodiscard, gnu::always_inline]] int64_t n_groups() const {
    return static_cast<int64_t>(div_up(static_cast<uint64_t>(n_rows), static_cast<uint64_t>(row_group)));
  }
  [[nodiscard, gnu::always_inline]] int64_t length() const { return n_groups() * group_cost; }

  /// The rows of the groups that start in [begin, end) of the line.
  [[nodiscard, gnu::always_inline]] Range rows_between(int64_t begin, int64_t end) const {
    return {first_from(begin) * row_group, std::min(first_from(end) * row_group, n_rows)};
  }

  /// The first group that starts at a point of the line or after it; n_groups() where none does.
  [[nodiscard, gnu::always_inline]] int64_t first_from(int64_t at) const {
    return at <= start ? 0 : std::min(n_groups(), (at - start + group_cost - 1) / group_cost);
  }
};

/// The rows of some panels, one after another on a line where a group is cost(panel) (> 0) long.
template <typename Cost>
class RowLine {
 public:
  RowLine(std::span<const MatmulPanel> panels, int64_t row_group, Cost cost)
      : panels_(panels), row_group_(row_group), cost_(cost) {
    for (const MatmulPanel& panel : panels) {
      length_ += stretch_of(panel, length_).length();
    }
  }

  [[nodiscard]] int64_t length() const { return length_; }

  /// Calls visit(panel, row_begin, row_end) for the groups that start in [begin, end).
  template <typename Visit>
  void visit(int64_t begin, int64_t end, Visit visit) const {
    int64_t start = 0;
    for (const MatmulPanel& panel : panels_) {
      const RowStretch stretch = stretch_of(panel, start);
      const RowStretch::Range rows = stretch.rows_between(begin, end);
      if (rows.begin < rows.end) {
        visit(panel, rows.begin, rows.end);
      }
      start += stretch.length();
    }
  }

 private:
  [[nodiscard]] RowStretch stretch_of(const MatmulPanel& panel, int64_t start) const {
    return {start, panel.rows, row_group_, cost_(panel)};
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

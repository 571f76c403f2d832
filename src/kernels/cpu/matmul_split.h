#pragma once
// How the threads of a team share the panels of one product: by rows over all panels jointly, never by columns.

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/checked.h"
#include "kernels/ops/matmul.h"

namespace tessera {

/// Calls visit(panel, row_begin, row_end) for the rows of part `part` of `n_parts`. All parts together visit every row
/// once. Rows go out in whole groups of row_group; a part gets about 1 / n_parts of the sum of
/// cost(panel) (> 0) over all groups.
template <typename Cost, typename Visit>
void visit_share(std::span<const MatmulPanel> panels, int64_t row_group, int part, int n_parts, Cost cost,
                 Visit visit) {
  const auto groups_of = [&](const MatmulPanel& panel) {
    return static_cast<int64_t>(div_up(static_cast<uint64_t>(panel.rows), static_cast<uint64_t>(row_group)));
  };
  int64_t total = 0;
  for (const MatmulPanel& panel : panels) {
    total += groups_of(panel) * cost(panel);
  }
  const int64_t begin = total * part / n_parts;
  const int64_t end = total * (part + 1) / n_parts;
  int64_t before = 0;
  for (const MatmulPanel& panel : panels) {
    const int64_t n_groups = groups_of(panel);
    const int64_t group_cost = cost(panel);
    // The groups whose start lies in [begin, end).
    const auto first_from = [&](int64_t at) {
      return at <= before ? 0 : std::min(n_groups, (at - before + group_cost - 1) / group_cost);
    };
    const int64_t row_begin = first_from(begin) * row_group;
    const int64_t row_end = std::min(first_from(end) * row_group, panel.rows);
    if (row_begin < row_end) {
      visit(panel, row_begin, row_end);
    }
    before += n_groups * group_cost;
  }
}

}  // namespace tessera

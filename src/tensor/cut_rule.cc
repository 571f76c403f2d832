#include "tensor/cut_rule.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/checked.h"

namespace tessera {

int AxisCuts::n_nonempty() const {
  int n = 0;
  for (int c = 0; c < n_cuts; ++c) {
    n += empty(c) ? 0 : 1;
  }
  return n;
}

int64_t AxisCuts::largest() const {
  int64_t most = 0;
  for (int c = 0; c < n_cuts; ++c) {
    most = std::max(most, groups(c).size());
  }
  return most;
}

int64_t cut_unit_groups(std::span<const ColumnCut> columns) {
  int64_t unit = 1;
  for (const ColumnCut& column : columns) {
    const int64_t block = std::lcm(static_cast<int64_t>(dtype_info(column.dtype).block_elems), kActivationBlock);
    if (column.begin % block != 0) {
      return kUndivided;
    }
    unit = std::lcm(unit, block / std::gcd(block, column.per_group));
  }
  return unit;
}

AxisCuts make_axis_cuts(int64_t n_groups, int64_t unit_groups, int n_cuts, int layer) {
  CHECK(n_cuts >= 1 && n_cuts <= kMaxCuts && n_groups >= 0 && unit_groups >= 1);
  const int64_t n_units =
      static_cast<int64_t>(div_up(static_cast<uint64_t>(n_groups), static_cast<uint64_t>(unit_groups)));
  const int64_t base = n_units / n_cuts;
  const int64_t extra = n_units % n_cuts;
  AxisCuts cuts;
  cuts.n_cuts = n_cuts;
  int64_t unit = 0;
  for (int c = 0; c < n_cuts; ++c) {
    cuts.bounds[static_cast<size_t>(c)] = std::min(unit * unit_groups, n_groups);
    unit += base + ((c + layer) % n_cuts < extra ? 1 : 0);
  }
  for (int c = n_cuts; c <= kMaxCuts; ++c) {
    cuts.bounds[static_cast<size_t>(c)] = n_groups;
  }
  return cuts;
}

}  // namespace tessera

#include "program/lower/cut_tree.h"

#include <algorithm>

#include "kernels/ops/reduce.h"

namespace tessera {
namespace {

CutMask range_mask(CutRange range) {
  return ((CutMask{1} << range.hi) - 1) & ~((CutMask{1} << range.lo) - 1);
}

int split_point(CutRange range) {
  return range.lo + (range.hi - range.lo + 1) / 2;
}

void collect(CutRange range, CutMask nonempty, CutMask held, std::vector<CutRange>& out) {
  const CutMask inside = range_mask(range) & nonempty;
  if ((inside & held) == 0) {
    return;
  }
  if ((inside & ~held) == 0) {
    out.push_back(range);
    return;
  }
  const int middle = split_point(range);
  collect({range.lo, middle}, nonempty, held, out);
  collect({middle, range.hi}, nonempty, held, out);
}

// Appends the sum over `range`; false when it has no non-empty cut.
bool append(CutRange range, CutMask nonempty, const std::vector<CutRange>& leaves, std::vector<int8_t>& order) {
  if ((range_mask(range) & nonempty) == 0) {
    return false;
  }
  const auto leaf = std::ranges::find(leaves, range);
  if (leaf != leaves.end()) {
    order.push_back(static_cast<int8_t>(leaf - leaves.begin()));
    return true;
  }
  const int middle = split_point(range);
  const bool lower = append({range.lo, middle}, nonempty, leaves, order);
  const bool upper = append({middle, range.hi}, nonempty, leaves, order);
  if (lower && upper) {
    order.push_back(kReduceAdd);
  }
  return lower || upper;
}

}  // namespace

std::vector<CutRange> held_subtrees(int n_cuts, CutMask nonempty, CutMask held) {
  std::vector<CutRange> subtrees;
  collect({0, n_cuts}, nonempty, held, subtrees);
  return subtrees;
}

std::vector<int8_t> tree_postfix(CutRange range, CutMask nonempty, const std::vector<CutRange>& leaves) {
  std::vector<int8_t> order;
  append(range, nonempty, leaves, order);
  return order;
}

}  // namespace tessera

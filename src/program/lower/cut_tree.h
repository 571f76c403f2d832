#pragma once
// The canonical tree in which per-cut partials are added.
//
// Over cut indices [0, n_cuts): a range of one cut is a leaf, a longer one splits in two halves, the lower the longer.
// Empty cuts are skipped, so the shape follows from the model's cuts alone and every distribution of cuts over devices
// adds in the same order. A device adds the complete sub-trees that it holds and sends their roots.

#include <cstdint>
#include <utility>
#include <vector>

namespace tessera {

/// A set of cuts, bit c for cut c.
using CutMask = uint32_t;

/// Cuts [lo, hi): a node of the tree.
struct CutRange {
  int lo = 0;
  int hi = 0;
  bool operator==(const CutRange&) const = default;
};

/// The largest sub-trees all of whose non-empty cuts are in `held`, in ascending order.
std::vector<CutRange> held_subtrees(int n_cuts, CutMask nonempty, CutMask held);

/// The sum over `range` as postfix (kernels/ops/reduce.h), where leaf i of the expression is the sub-tree leaves[i].
/// REQUIRES: leaves cover the non-empty cuts of the range exactly once.
std::vector<int8_t> tree_postfix(CutRange range, CutMask nonempty, const std::vector<CutRange>& leaves);

}  // namespace tessera

#pragma once
// Cut rules: how a weight follows a splittable axis of its layer.
//
// Every splittable axis (attention heads, feed-forward columns, vocabulary rows, experts) is divided into n_cuts pieces
// when a model is loaded. An axis counts in *groups*: KV groups (one KV head with its query heads; in a recurrent layer
// a key head with its value heads), single feed-forward columns, single vocabulary rows, single experts. A CutRule says
// which rows or columns of one tensor belong to group g; AxisCuts says which groups belong to cut c of one layer.
// Architecture files state the rules; nothing else knows them.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace tessera {

/// At most this many cuts per axis.
inline constexpr int kMaxCuts = 8;

/// Elements of one quantised activation block: activation scales never span a cut.
inline constexpr int64_t kActivationBlock = 32;

/// A splittable axis of a layer (kHead: of the model).
enum class CutAxis : uint8_t { kNone, kAttention, kFeedForward, kHead, kExpert };

/// Which dimension of a [rows, columns] weight the axis runs along.
enum class CutDim : uint8_t { kNone, kRows, kColumns };

/// Elements [begin + g * per_group, begin + (g + 1) * per_group) of the cut dimension belong to group g.
struct CutSegment {
  int64_t begin = 0;
  int64_t per_group = 0;
};

/// How a tensor is cut. Default: not at all (every device that needs it holds a replica).
struct CutRule {
  CutAxis axis = CutAxis::kNone;
  CutDim dim = CutDim::kNone;
  std::vector<CutSegment> segments;  // several for fused tensors (qkv, gate_up)

  static CutRule rows(CutAxis axis, int64_t per_group) { return {axis, CutDim::kRows, {{0, per_group}}}; }
  static CutRule columns(CutAxis axis, int64_t per_group) { return {axis, CutDim::kColumns, {{0, per_group}}}; }
};

/// A half-open range of groups, rows or columns.
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
  [[nodiscard]] int64_t size() const { return end - begin; }
  [[nodiscard]] bool empty() const { return end <= begin; }
  bool operator==(const IndexRange&) const = default;
};

/// The cuts of one axis in one layer: cut c holds groups [bounds[c], bounds[c + 1]), perhaps none.
struct AxisCuts {
  int n_cuts = 1;
  std::array<int64_t, kMaxCuts + 1> bounds{};

  [[nodiscard]] IndexRange groups(int cut) const { return {bounds[cut], bounds[cut + 1]}; }
  [[nodiscard]] bool empty(int cut) const { return groups(cut).empty(); }
  [[nodiscard]] int n_nonempty() const;
  /// Groups of the largest cut: where a kernel must choose by shape, this is the shape that is the same in every
  /// placement.
  [[nodiscard]] int64_t largest() const;
};

/// What of a tensor limits where its axis may be cut.
struct ColumnCut {
  DType dtype;
  int64_t per_group;  // columns per group
  int64_t begin = 0;  // of the segment
};

/// More groups than any axis has: one that cannot be divided.
inline constexpr int64_t kUndivided = int64_t{1} << 40;

/// The smallest number of groups whose columns are whole blocks of every weight in `columns` and of the quantised
/// activation. 1 when no weight is cut by columns; kUndivided when a segment begins inside a block.
int64_t cut_unit_groups(std::span<const ColumnCut> columns);

/// Divides n_groups into n_cuts at multiples of unit_groups, as evenly as units allow. Cuts that get one unit more (or
/// none, when there are fewer units than cuts) rotate with the layer, so that bytes even out over layers.
/// REQUIRES: 1 <= n_cuts <= kMaxCuts, n_groups >= 0, unit_groups >= 1.
AxisCuts make_axis_cuts(int64_t n_groups, int64_t unit_groups, int n_cuts, int layer);

}  // namespace tessera

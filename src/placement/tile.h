#pragma once
// Tiles: the smallest things of a model that have a home.
//
// make_tiles() divides a tensor table by its cut rules: attn(l, c) holds the query, key, value rows and output columns
// of the groups in cut c of layer l, ffn(l, c) the gate and up rows and down columns, head(c) vocabulary rows.
// expert(l, e) holds one whole expert; it belongs to the cut whose experts include e. This is the only place where a
// tensor is cut. A tile is geometry; its bytes depend on the kernel class that will use it, which layout_tile() counts
// and loading carves with the same code. Pure, no device.

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/tensor_table.h"

namespace tessera {

/// The part of one tensor in one tile: some rows by some columns, either in several ranges when the rule has several
/// segments.
struct TilePanel {
  TensorIndex tensor = kNoTensor;
  std::vector<IndexRange> rows;
  int64_t n_rows = 0;  // over all ranges
  std::vector<IndexRange> columns;
  int64_t n_columns = 0;  // over all ranges
};

struct Tile {
  TileKind kind = TileKind::kAttn;
  int32_t layer = -1;
  int32_t cut = 0;
  int32_t expert = -1;            // kExpert only
  std::vector<TilePanel> panels;  // in the order of the tensor table
};

/// All tiles of a model, and the cuts they came from. Cuts without groups have no tile.
struct TileSet {
  int n_cuts = 1;
  std::vector<Tile> tiles;
  std::vector<AxisCuts> attn_cuts;    // by layer
  std::vector<AxisCuts> ffn_cuts;     // by layer
  std::vector<AxisCuts> expert_cuts;  // by layer
  AxisCuts head_cuts;

  [[nodiscard]] const AxisCuts& cuts(CutAxis axis, int32_t layer) const;
  /// Index of a tile; -1 where the cut is empty.
  [[nodiscard]] int find(TileKind kind, int32_t layer, int cut) const;
  /// Index of expert(layer, expert). REQUIRES: the layer has that expert.
  [[nodiscard]] int find_expert(int32_t layer, int64_t expert) const;
  /// A tile of this cut, which says where the cut lives; -1 where the cut is empty.
  [[nodiscard]] int anchor(CutAxis axis, int32_t layer, int cut) const;

  std::vector<int32_t> index;         // (kind, layer, cut) -> tile; use find()
  std::vector<int32_t> first_expert;  // by layer: tile of expert 0; the others follow
};

/// "replica", "host", "attn", "ffn", "head", "expert".
std::string_view tile_kind_name(TileKind kind);

/// The tile kind whose tiles hold the groups of an axis.
TileKind tile_kind_of(CutAxis axis);

/// REQUIRES: 1 <= n_cuts <= kMaxCuts.
TileSet make_tiles(const TensorTable& table, int n_cuts);

/// Bytes of a packed [rows, columns] panel of a dtype in some kernel class.
using PanelSizer = std::function<uint64_t(DType dtype, int64_t rows, int64_t columns)>;

/// Panels start on multiples of this.
inline constexpr uint64_t kPanelAlignment = 64;

struct TileLayout {
  std::vector<uint64_t> panel_offsets;  // by panel, bytes from the tile's start
  uint64_t bytes = 0;
};
TileLayout layout_tile(const TensorTable& table, const Tile& tile, const PanelSizer& sizer);

/// Where each replica lies: offset of every kReplica tensor (others: 0) from the region's start, each as f32.
struct ReplicaLayout {
  std::vector<uint64_t> offsets;  // by tensor
  uint64_t bytes = 0;
};
ReplicaLayout layout_replicas(const TensorTable& table);

}  // namespace tessera

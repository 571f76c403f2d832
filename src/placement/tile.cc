#include "placement/tile.h"

#include "base/check.h"
#include "base/checked.h"

namespace tessera {
namespace {

// The vocabulary is cut at multiples of this many rows, a whole number of row groups of every layout.
constexpr int64_t kHeadUnitRows = 64;
constexpr int kTileKinds = 3;  // attn, ffn, head: those that find() knows

size_t kind_slot(TileKind kind) {
  return static_cast<size_t>(kind) - static_cast<size_t>(TileKind::kAttn);
}

size_t index_slot(const TileSet& set, TileKind kind, int32_t layer, int cut) {
  const size_t place = kind == TileKind::kHead ? 0 : static_cast<size_t>(layer);
  return (place * kTileKinds + kind_slot(kind)) * static_cast<size_t>(set.n_cuts) + static_cast<size_t>(cut);
}

// Which tensors each layer has, ascending; behind the layers, those that belong to none. Looking through the whole
// table for every layer would take time that grows with the square of their number.
class LayerTensors {
 public:
  explicit LayerTensors(const TensorTable& table) : by_layer_(table.layers.size() + 1) {
    for (size_t t = 0; t < table.tensors.size(); ++t) {
      by_layer_[slot(table.tensors[t].layer)].push_back(static_cast<TensorIndex>(t));
    }
  }
  [[nodiscard]] const std::vector<TensorIndex>& of(int32_t layer) const { return by_layer_[slot(layer)]; }

 private:
  [[nodiscard]] size_t slot(int32_t layer) const {
    return layer < 0 ? by_layer_.size() - 1 : static_cast<size_t>(layer);
  }
  std::vector<std::vector<TensorIndex>> by_layer_;
};

AxisCuts cuts_of_axis(const TensorTable& table, const LayerTensors& tensors, CutAxis axis, int32_t layer, int n_cuts) {
  std::vector<ColumnCut> columns;
  for (const TensorIndex t : tensors.of(layer)) {
    const TensorSpec& spec = table.tensors[static_cast<size_t>(t)];
    if (spec.cut.axis == axis && spec.cut.dim == CutDim::kColumns) {
      for (const CutSegment& segment : spec.cut.segments) {
        columns.push_back({spec.dtype, segment.per_group, segment.begin});
      }
    }
  }
  return make_axis_cuts(table.n_groups(axis, layer), cut_unit_groups(columns), n_cuts, layer);
}

// What the rule gives to some groups, neighbouring ranges joined.
std::vector<IndexRange> ranges_of(const CutRule& rule, IndexRange groups) {
  std::vector<IndexRange> ranges;
  for (const CutSegment& segment : rule.segments) {
    const IndexRange range = {segment.begin + groups.begin * segment.per_group,
                              segment.begin + groups.end * segment.per_group};
    if (!ranges.empty() && ranges.back().end == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

TilePanel panel_of(const TensorSpec& spec, TensorIndex tensor, IndexRange groups) {
  TilePanel panel;
  panel.tensor = tensor;
  panel.rows = {{0, spec.rows}};
  panel.columns = {{0, spec.columns}};
  (spec.cut.dim == CutDim::kColumns ? panel.columns : panel.rows) = ranges_of(spec.cut, groups);
  for (const IndexRange& rows : panel.rows) {
    panel.n_rows += rows.size();
  }
  for (const IndexRange& columns : panel.columns) {
    panel.n_columns += columns.size();
  }
  return panel;
}

void add_tiles(TileSet& set, const TensorTable& table, const LayerTensors& tensors, CutAxis axis, int32_t layer) {
  const AxisCuts& cuts = set.cuts(axis, layer);
  const TileKind kind = tile_kind_of(axis);
  for (int c = 0; c < set.n_cuts; ++c) {
    if (cuts.empty(c)) {
      continue;
    }
    Tile tile;
    tile.kind = kind;
    tile.layer = layer;
    tile.cut = c;
    for (const TensorIndex t : tensors.of(layer)) {
      const TensorSpec& spec = table.tensors[static_cast<size_t>(t)];
      if (spec.tile == kind) {
        tile.panels.push_back(panel_of(spec, t, cuts.groups(c)));
      }
    }
    set.index[index_slot(set, kind, layer, c)] = static_cast<int32_t>(set.tiles.size());
    set.tiles.push_back(std::move(tile));
  }
}

// Experts are tiles of their own. Their tensors are listed once, since there may be very many experts.
void add_expert_tiles(TileSet& set, const TensorTable& table, const LayerTensors& tensors, int32_t layer) {
  const AxisCuts& cuts = set.cuts(CutAxis::kExpert, layer);
  set.first_expert.push_back(static_cast<int32_t>(set.tiles.size()));
  Tile tile;
  tile.kind = TileKind::kExpert;
  tile.layer = layer;
  for (const TensorIndex t : tensors.of(layer)) {
    const TensorSpec& spec = table.tensors[static_cast<size_t>(t)];
    if (spec.tile == TileKind::kExpert) {
      tile.panels.push_back({t, {{0, spec.rows}}, spec.rows, {{0, spec.columns}}, spec.columns});
    }
  }
  for (int c = 0; c < set.n_cuts; ++c) {
    tile.cut = c;
    for (int64_t e = cuts.groups(c).begin; e < cuts.groups(c).end; ++e) {
      tile.expert = static_cast<int32_t>(e);
      set.tiles.push_back(tile);
    }
  }
}

}  // namespace

const AxisCuts& TileSet::cuts(CutAxis axis, int32_t layer) const {
  switch (axis) {
    case CutAxis::kAttention: return attn_cuts[static_cast<size_t>(layer)];
    case CutAxis::kFeedForward: return ffn_cuts[static_cast<size_t>(layer)];
    case CutAxis::kExpert: return expert_cuts[static_cast<size_t>(layer)];
    case CutAxis::kHead:
    case CutAxis::kNone: break;
  }
  return head_cuts;
}

int TileSet::find(TileKind kind, int32_t layer, int cut) const {
  return index[index_slot(*this, kind, layer, cut)];
}

int TileSet::find_expert(int32_t layer, int64_t expert) const {
  return first_expert[static_cast<size_t>(layer)] + static_cast<int>(expert);
}

int TileSet::anchor(CutAxis axis, int32_t layer, int cut) const {
  if (axis != CutAxis::kExpert) {
    return find(tile_kind_of(axis), layer, cut);
  }
  const IndexRange experts = cuts(axis, layer).groups(cut);
  return experts.empty() ? -1 : find_expert(layer, experts.begin);
}

std::string_view tile_kind_name(TileKind kind) {
  switch (kind) {
    case TileKind::kReplica: return "replica";
    case TileKind::kHost: return "host";
    case TileKind::kAttn: return "attn";
    case TileKind::kFfn: return "ffn";
    case TileKind::kHead: return "head";
    case TileKind::kExpert: return "expert";
  }
  CHECK(false);
}

TileKind tile_kind_of(CutAxis axis) {
  switch (axis) {
    case CutAxis::kAttention: return TileKind::kAttn;
    case CutAxis::kFeedForward: return TileKind::kFfn;
    case CutAxis::kExpert: return TileKind::kExpert;
    case CutAxis::kHead:
    case CutAxis::kNone: break;
  }
  return TileKind::kHead;
}

TileSet make_tiles(const TensorTable& table, int n_cuts) {
  CHECK(n_cuts >= 1 && n_cuts <= kMaxCuts);
  const auto n_layer = static_cast<int32_t>(table.layers.size());
  const LayerTensors tensors(table);
  TileSet set;
  set.n_cuts = n_cuts;
  set.index.assign(static_cast<size_t>(std::max(n_layer, 1) * kTileKinds * n_cuts), -1);
  for (int32_t l = 0; l < n_layer; ++l) {
    set.attn_cuts.push_back(cuts_of_axis(table, tensors, CutAxis::kAttention, l, n_cuts));
    set.ffn_cuts.push_back(cuts_of_axis(table, tensors, CutAxis::kFeedForward, l, n_cuts));
    set.expert_cuts.push_back(make_axis_cuts(table.n_groups(CutAxis::kExpert, l), 1, n_cuts, l));
  }
  set.head_cuts = make_axis_cuts(table.n_vocab, kHeadUnitRows, n_cuts, 0);
  for (int32_t l = 0; l < n_layer; ++l) {
    add_tiles(set, table, tensors, CutAxis::kAttention, l);
    add_tiles(set, table, tensors, CutAxis::kFeedForward, l);
    add_expert_tiles(set, table, tensors, l);
  }
  add_tiles(set, table, tensors, CutAxis::kHead, -1);
  return set;
}

TileLayout layout_tile(const TensorTable& table, const Tile& tile, const PanelSizer& sizer) {
  TileLayout layout;
  for (const TilePanel& panel : tile.panels) {
    layout.panel_offsets.push_back(layout.bytes);
    const DType dtype = table.tensors[static_cast<size_t>(panel.tensor)].dtype;
    layout.bytes += round_up(sizer(dtype, panel.n_rows, panel.n_columns), kPanelAlignment);
  }
  return layout;
}

ReplicaLayout layout_replicas(const TensorTable& table) {
  ReplicaLayout layout;
  for (const TensorSpec& spec : table.tensors) {
    layout.offsets.push_back(layout.bytes);
    if (spec.tile == TileKind::kReplica) {
      layout.bytes += round_up(static_cast<uint64_t>(spec.rows * spec.columns) * sizeof(float), kPanelAlignment);
    }
  }
  return layout;
}

}  // namespace tessera

#include "placement/placement.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "placement/planner.h"

namespace tessera {
namespace {

// A model of n_layer equal layers: 4 KV heads of 32 with 2 query heads each, feed-forward 512, vocabulary 1000.
TensorTable small_table(int n_layer, DType dtype) {
  TensorTable table;
  table.n_vocab = 1000;
  table.layers.assign(static_cast<size_t>(n_layer), {4, 512});
  const auto add = [&](std::string name, int64_t rows, int64_t columns, TileKind tile, int layer, CutRule cut) {
    TensorSpec spec;
    spec.name = std::move(name);
    spec.dtype = dtype;
    spec.rows = rows;
    spec.columns = columns;
    spec.tile = tile;
    spec.layer = layer;
    spec.cut = std::move(cut);
    spec.source = 0;
    table.tensors.push_back(std::move(spec));
  };
  add("norm", 1, 256, TileKind::kReplica, -1, {});
  for (int l = 0; l < n_layer; ++l) {
    add("q", 256, 256, TileKind::kAttn, l, CutRule::rows(CutAxis::kAttention, 64));
    add("k", 128, 256, TileKind::kAttn, l, CutRule::rows(CutAxis::kAttention, 32));
    add("o", 256, 256, TileKind::kAttn, l, CutRule::columns(CutAxis::kAttention, 64));
    add("up", 512, 256, TileKind::kFfn, l, CutRule::rows(CutAxis::kFeedForward, 1));
    add("down", 256, 512, TileKind::kFfn, l, CutRule::columns(CutAxis::kFeedForward, 1));
  }
  add("head", 1000, 256, TileKind::kHead, -1, CutRule::rows(CutAxis::kHead, 1));
  return table;
}

uint64_t plain_bytes(DType dtype, int64_t rows, int64_t columns) {
  return static_cast<uint64_t>(rows) * row_bytes(dtype, static_cast<uint64_t>(columns));
}

PlacementTarget target_of(const TensorTable& table, int n_devices) {
  PlacementTarget target;
  target.n_devices = n_devices;
  target.tile_bytes = [&table](const Tile& tile, int) { return layout_tile(table, tile, plain_bytes).bytes; };
  target.unit_bytes = [](int) { return uint64_t{4096}; };
  return target;
}

TEST(Tiles, HoldEveryElementOfEveryWeightOnce) {
  for (const DType dtype : {DType::kF32, DType::kQ4_0, DType::kQ4_K}) {
    const TensorTable table = small_table(3, dtype);
    for (int n_cuts = 1; n_cuts <= kMaxCuts; ++n_cuts) {
      const TileSet set = make_tiles(table, n_cuts);
      std::vector<int64_t> elements(table.tensors.size(), 0);
      for (const Tile& tile : set.tiles) {
        EXPECT_EQ(set.find(tile.kind, tile.layer, tile.cut), &tile - set.tiles.data());
        for (const TilePanel& panel : tile.panels) {
          elements[static_cast<size_t>(panel.tensor)] += panel.n_rows * panel.n_columns;
          for (const IndexRange& columns : panel.columns) {
            EXPECT_EQ(columns.begin % dtype_info(dtype).block_elems, 0);
            EXPECT_EQ(columns.end % dtype_info(dtype).block_elems, 0);
          }
        }
      }
      for (size_t t = 1; t < elements.size(); ++t) {
        EXPECT_EQ(elements[t], table.tensors[t].rows * table.tensors[t].columns) << table.tensors[t].name;
      }
      EXPECT_EQ(elements[0], 0);
    }
  }
}

TEST(Tiles, PairUpGroupsThatAreNoWholeBlocks) {
  // Two query heads of 32 are 64 columns; a Q4_K block has 256: all four groups stay together.
  const TileSet set = make_tiles(small_table(1, DType::kQ4_K), 4);
  EXPECT_EQ(set.attn_cuts[0].n_nonempty(), 1);
  EXPECT_EQ(set.ffn_cuts[0].n_nonempty(), 2);
}

TEST(Tiles, FusedTensorsGiveOneRangePerSegment) {
  TensorTable table;
  table.n_vocab = 64;
  table.layers = {{4, 512}};
  TensorSpec qkv;
  qkv.name = "qkv";
  qkv.rows = 512;
  qkv.columns = 256;
  qkv.tile = TileKind::kAttn;
  qkv.layer = 0;
  qkv.cut = {CutAxis::kAttention, CutDim::kRows, {{0, 64}, {256, 32}, {384, 32}}};
  table.tensors.push_back(qkv);
  const TileSet set = make_tiles(table, 2);
  const Tile& second = set.tiles[static_cast<size_t>(set.find(TileKind::kAttn, 0, 1))];
  ASSERT_EQ(second.panels.size(), 1U);
  EXPECT_EQ(second.panels[0].rows, (std::vector<IndexRange>{{128, 256}, {320, 384}, {448, 512}}));
  EXPECT_EQ(second.panels[0].n_rows, 256);
}

// Value heads that the file stores tiled: the columns of one cut lie in several places, unless it has all of them.
TEST(Tiles, SeveralSegmentsOfColumnsGiveSeveralRanges) {
  TensorTable table;
  table.n_vocab = 64;
  table.layers = {{4, 512}};
  TensorSpec out;
  out.name = "out";
  out.dtype = DType::kQ8_0;
  out.rows = 64;
  out.columns = 256;
  out.tile = TileKind::kAttn;
  out.layer = 0;
  out.cut = {CutAxis::kAttention, CutDim::kColumns, {{0, 32}, {128, 32}}};
  table.tensors.push_back(out);
  const auto panel = [&](int n_cuts, int cut) {
    const TileSet set = make_tiles(table, n_cuts);
    return set.tiles[static_cast<size_t>(set.find(TileKind::kAttn, 0, cut))].panels[0];
  };
  EXPECT_EQ(panel(2, 1).columns, (std::vector<IndexRange>{{64, 128}, {192, 256}}));
  EXPECT_EQ(panel(2, 1).n_columns, 128);
  EXPECT_EQ(panel(1, 0).columns, (std::vector<IndexRange>{{0, 256}}));
  // With blocks of 256 the second segment begins inside one: no cut is possible.
  table.tensors[0].dtype = DType::kQ4_K;
  EXPECT_EQ(make_tiles(table, 4).attn_cuts[0].n_nonempty(), 1);
  EXPECT_EQ(panel(4, make_tiles(table, 4).attn_cuts[0].empty(0) ? 1 : 0).n_columns, 256);
}

TEST(Shares, ChooseAsFewCutsAsExpressThem) {
  EXPECT_EQ(choose_n_cuts({}, 1, 0), 1);
  EXPECT_EQ(choose_n_cuts({}, 3, 0), 3);
  EXPECT_EQ(choose_n_cuts({{3, 1}}, 2, 0), 4);
  EXPECT_EQ(choose_n_cuts({{4, 1}}, 2, 0), 5);
  EXPECT_EQ(choose_n_cuts({{1, 0}}, 2, 0), 1);
  EXPECT_EQ(choose_n_cuts({{100, 0, 0}}, 3, 0), 1);
  EXPECT_EQ(choose_n_cuts({{13, 1}}, 2, 0), kMaxCuts);
  EXPECT_EQ(choose_n_cuts({{1, 1}}, 2, 6), 6);
}

TEST(Shares, DivideCutsByLargestRemainder) {
  EXPECT_EQ(cuts_per_device({{3, 1}}, 2, 4), (std::vector<int>{3, 1}));
  EXPECT_EQ(cuts_per_device({{1, 0, 1}}, 3, 5), (std::vector<int>{3, 0, 2}));
  EXPECT_EQ(cuts_per_device({}, 5, 2), (std::vector<int>{1, 1, 0, 0, 0}));
  EXPECT_EQ(cuts_per_device({{13, 1}}, 2, 8), (std::vector<int>{7, 1}));
}

TEST(Shares, AreChecked) {
  EXPECT_TRUE(check_shares({}, 2).ok());
  EXPECT_NE(check_shares({{1, 2, 3}}, 1).message().find("--tensor-split has 3 shares for 1 device;"),
            std::string::npos);
  EXPECT_NE(check_shares({{1, 2, 3}}, 2).message().find("--tensor-split has 3 shares for 2 devices"),
            std::string::npos);
  EXPECT_FALSE(check_shares({{1, -1}}, 2).ok());
  EXPECT_FALSE(check_shares({{0, 0}}, 2).ok());
  EXPECT_FALSE(check_shares({{1, std::nan("")}}, 2).ok());
}

TEST(Placement, TilesOfADeviceLieOnTheGridWithoutOverlap) {
  const TensorTable table = small_table(6, DType::kQ4_0);
  for (const SplitMode mode : {SplitMode::kNone, SplitMode::kLayer, SplitMode::kTensor}) {
    for (const Shares& shares : {Shares{}, Shares{{3, 1, 0}}, Shares{{0, 1, 1}}}) {
      const TileSet set = make_tiles(table, 4);
      const PlacementTarget target = target_of(table, 3);
      const Placement placement = make_placement(set, mode, shares, target, 7);
      EXPECT_EQ(placement.version, 7U);
      std::vector<uint64_t> end(3, 0);
      std::vector<size_t> in_order(set.tiles.size());
      std::iota(in_order.begin(), in_order.end(), 0);
      std::ranges::sort(in_order, {}, [&](size_t t) { return placement.offset[t]; });
      for (const size_t t : in_order) {
        const auto home = static_cast<size_t>(placement.home[t]);
        EXPECT_EQ(placement.offset[t] % 4096, 0U);
        EXPECT_EQ(placement.offset[t], end[home]);
        end[home] += (target.tile_bytes(set.tiles[t], 0) + 4095) / 4096 * 4096;
        EXPECT_GT(shares.of(placement.home[t], 3), 0) << "a share of zero leaves a device unused";
      }
      EXPECT_EQ(end, placement.tile_region_bytes);
    }
  }
}

TEST(Placement, LayerModeKeepsLayersWholeAndInOrder) {
  const TensorTable table = small_table(8, DType::kF32);
  const TileSet set = make_tiles(table, 2);
  const Placement placement = make_placement(set, SplitMode::kLayer, {{3, 1}}, target_of(table, 2), 1);
  std::vector<int> by_layer(8, -1);
  for (size_t t = 0; t < set.tiles.size(); ++t) {
    const Tile& tile = set.tiles[t];
    if (tile.layer < 0) {
      EXPECT_EQ(placement.home[t], 1) << "the head comes behind the last layer";
      continue;
    }
    int& home = by_layer[static_cast<size_t>(tile.layer)];
    EXPECT_TRUE(home < 0 || home == placement.home[t]);
    home = placement.home[t];
  }
  EXPECT_TRUE(std::is_sorted(by_layer.begin(), by_layer.end()));
  EXPECT_EQ(std::ranges::count(by_layer, 0), 6) << "three quarters of eight layers, however large the head is";
}

TEST(Placement, LayerModeGivesEveryDeviceWithAShareALayer) {
  const TensorTable table = small_table(9, DType::kF32);
  const TileSet set = make_tiles(table, 1);
  for (const Shares& shares : {Shares{}, Shares{{1, 0, 2, 1, 1}}, Shares{{0, 0, 1, 1, 0}}}) {
    const Placement placement = make_placement(set, SplitMode::kLayer, shares, target_of(table, 5), 1);
    std::vector<int> n_layers(5, 0);
    for (size_t t = 0; t < set.tiles.size(); ++t) {
      n_layers[static_cast<size_t>(placement.home[t])] += set.tiles[t].kind == TileKind::kAttn ? 1 : 0;
    }
    for (int d = 0; d < 5; ++d) {
      EXPECT_NEAR(n_layers[static_cast<size_t>(d)], 9 * shares.of(d, 5), 0.999) << "device " << d;
      EXPECT_EQ(n_layers[static_cast<size_t>(d)] > 0, shares.of(d, 5) > 0) << "device " << d;
    }
  }
}

TEST(Placement, TensorModeBalancesBytesWithinOneLayersTile) {
  const TensorTable table = small_table(7, DType::kQ4_0);
  const TileSet set = make_tiles(table, 3);
  const Placement placement = make_placement(set, SplitMode::kTensor, {}, target_of(table, 3), 1);
  const auto [least, most] = std::ranges::minmax(placement.tile_region_bytes);
  uint64_t layer_tile = 0;
  for (const Tile& tile : set.tiles) {
    layer_tile = std::max(layer_tile, layout_tile(table, tile, plain_bytes).bytes);
  }
  EXPECT_LE(most - least, layer_tile + 8 * 4096);
}

TEST(Placement, NoneIsOneShareOfAll) {
  const TensorTable table = small_table(4, DType::kF32);
  const TileSet set = make_tiles(table, 2);
  const PlacementTarget target = target_of(table, 3);
  const Placement none = make_placement(set, SplitMode::kNone, {{1, 0, 0}}, target, 1);
  for (const SplitMode mode : {SplitMode::kLayer, SplitMode::kTensor}) {
    const Placement same = make_placement(set, mode, {{1, 0, 0}}, target, 1);
    EXPECT_EQ(none.home, same.home);
    EXPECT_EQ(none.offset, same.offset);
  }
}

TEST(Tiles, ExpertsAreWholeAndBelongToACut) {
  TensorTable table = small_table(2, DType::kF32);
  table.layers[1].n_experts = 5;
  TensorSpec spec;
  spec.name = "experts";
  spec.rows = 96;
  spec.columns = 256;
  spec.tile = TileKind::kExpert;
  spec.layer = 1;
  spec.experts.resize(5);
  table.tensors.push_back(spec);
  const TileSet tiles = make_tiles(table, 2);
  EXPECT_EQ(tiles.anchor(CutAxis::kExpert, 0, 0), -1);
  const AxisCuts& cuts = tiles.cuts(CutAxis::kExpert, 1);
  EXPECT_EQ(cuts.groups(0).size() + cuts.groups(1).size(), 5);
  for (int64_t e = 0; e < 5; ++e) {
    const Tile& tile = tiles.tiles[static_cast<size_t>(tiles.find_expert(1, e))];
    EXPECT_EQ(tile.kind, TileKind::kExpert);
    EXPECT_EQ(tile.expert, e);
    EXPECT_TRUE(cuts.groups(tile.cut).begin <= e && e < cuts.groups(tile.cut).end);
    ASSERT_EQ(tile.panels.size(), 1U);
    EXPECT_EQ(tile.panels[0].n_rows, 96);
    EXPECT_EQ(tile.panels[0].n_columns, 256);
  }
  EXPECT_EQ(tiles.anchor(CutAxis::kExpert, 1, 1), tiles.find_expert(1, cuts.groups(1).begin));
}

// Bytes that a transition moves within a device (but for those that come out of staging), and between devices.
std::pair<uint64_t, uint64_t> local_and_link_bytes(const TileSet& set, const Placement& from, const Placement& to,
                                                   const PlacementTarget& target) {
  TransitionRequest request;
  request.pools.assign(static_cast<size_t>(target.n_devices), {target.unit_bytes(0), UINT64_MAX});
  for (size_t t = 0; t < set.tiles.size(); ++t) {
    request.extents.push_back(
        {target.tile_bytes(set.tiles[t], 0), {from.home[t], from.offset[t]}, {to.home[t], to.offset[t]}});
  }
  const auto plan = plan_transition(request);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  std::pair<uint64_t, uint64_t> bytes;
  for (const Move& move : plan->moves) {
    if (!move.from_staging) {
      (move.from.device == move.to.device ? bytes.first : bytes.second) += move.bytes;
    }
  }
  return bytes;
}

TEST(KeepPlaces, LayerToTensorMovesHalfTheBytesAndNothingWithinADevice) {
  const TensorTable table = small_table(8, DType::kF32);
  const TileSet set = make_tiles(table, 2);
  const PlacementTarget target = target_of(table, 2);
  const Placement layer = make_placement(set, SplitMode::kLayer, {}, target, 1);
  const Placement tensor = make_placement(set, SplitMode::kTensor, {}, target, 2);
  const Placement kept = keep_places(set, tensor, layer, target);
  EXPECT_EQ(kept.home, tensor.home);
  EXPECT_EQ(kept.version, 2U);
  for (size_t d = 0; d < 2; ++d) {
    EXPECT_LE(kept.tile_region_bytes[d], std::max(layer.tile_region_bytes[d], tensor.tile_region_bytes[d]));
  }
  const uint64_t all = std::accumulate(layer.tile_region_bytes.begin(), layer.tile_region_bytes.end(), uint64_t{0});
  const auto [local, link] = local_and_link_bytes(set, layer, kept, target);
  EXPECT_EQ(local, 0U);
  EXPECT_NEAR(static_cast<double>(link), static_cast<double>(all) / 2, static_cast<double>(all) * 0.05);
  EXPECT_GT(local_and_link_bytes(set, layer, tensor, target).first, 0U);  // what keeping saves
}

// Two devices exchange a tile for a tile, again and again: that would be a cycle for each pair, and a copy through
// staging for each cycle.
TEST(KeepPlaces, ExchangesMakeFewCycles) {
  const TensorTable table = small_table(40, DType::kF32);
  const TileSet set = make_tiles(table, 2);
  const PlacementTarget target = target_of(table, 2);
  Placement current = make_placement(set, SplitMode::kLayer, {}, target, 1);
  for (int i = 0; i < 6; ++i) {
    const SplitMode mode = i % 2 == 0 ? SplitMode::kTensor : SplitMode::kLayer;
    const Placement wanted = make_placement(set, mode, {}, target, current.version + 1);
    const Placement kept = keep_places(set, wanted, current, target);
    EXPECT_EQ(kept.tile_region_bytes, wanted.tile_region_bytes) << "as small as if it had been loaded so";
    TransitionRequest request;
    request.pools.assign(2, {target.unit_bytes(0), UINT64_MAX});
    int64_t n_moving = 0;
    for (size_t t = 0; t < set.tiles.size(); ++t) {
      n_moving += current.home[t] != kept.home[t] ? 1 : 0;
      request.extents.push_back(
          {target.tile_bytes(set.tiles[t], 0), {current.home[t], current.offset[t]}, {kept.home[t], kept.offset[t]}});
    }
    const auto plan = plan_transition(request);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const auto n_cycles = std::ranges::count(plan->moves, true, &Move::to_staging);
    EXPECT_GE(n_moving, 80);
    EXPECT_GE(n_cycles, 2) << "both directions at once";
    EXPECT_LE(n_cycles, 16);
    current = kept;
  }
}

// One tile of every third layer is a unit larger, as where formats are mixed, and one device has one such layer more:
// nearly all must still go whole to where another of its size was.
TEST(KeepPlaces, TilesOfMixedSizesMoveWhole) {
  constexpr uint64_t kUnit = 4096;
  constexpr size_t kLayers = 107;
  constexpr size_t kPerLayer = 12;  // six of each cut
  const auto bytes = [](size_t thing, int) {
    const bool is_larger = thing / kPerLayer % 3 == 2 && thing % kPerLayer < 2;
    return (40 + (is_larger ? 1 : 0)) * kUnit;
  };
  const auto layout_of = [&](bool by_layer) {
    Layout layout;
    layout.region_bytes.assign(2, 0);
    for (size_t t = 0; t < kLayers * kPerLayer; ++t) {
      const size_t home = by_layer ? t / kPerLayer / (kLayers / 2 + 1) : t % 2;
      layout.home.push_back(static_cast<int32_t>(home));
      layout.offset.push_back(layout.region_bytes[home]);
      layout.region_bytes[home] += bytes(t, 0);
    }
    return layout;
  };
  Layout current = layout_of(true);
  for (int i = 0; i < 6; ++i) {
    const Layout wanted = layout_of(i % 2 == 1);
    const Layout kept = keep_offsets(wanted, current, bytes);
    TransitionRequest request;
    request.pools.assign(2, {kUnit, UINT64_MAX});
    size_t n_moving = 0;
    for (size_t t = 0; t < kept.home.size(); ++t) {
      n_moving += current.home[t] != kept.home[t] ? 1 : 0;
      request.extents.push_back({bytes(t, 0), {current.home[t], current.offset[t]}, {kept.home[t], kept.offset[t]}});
    }
    for (size_t d = 0; d < 2; ++d) {
      EXPECT_LE(kept.region_bytes[d], std::max(wanted.region_bytes[d], current.region_bytes[d]));
    }
    const auto plan = plan_transition(request);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_GE(n_moving, kLayers * kPerLayer / 2 - kPerLayer);
    EXPECT_LE(plan->moves.size(), n_moving + n_moving / 4);
    current = kept;
  }
}

TEST(KeepPlaces, RandomHomesStayWithinTheLargerRegion) {
  const TensorTable table = small_table(6, DType::kQ4_0);
  const TileSet set = make_tiles(table, 4);
  const PlacementTarget target = target_of(table, 3);
  std::mt19937 random(3);
  Placement current = make_placement(set, SplitMode::kLayer, {}, target, 1);
  for (int i = 0; i < 300; ++i) {
    Placement wanted = current;
    wanted.tile_region_bytes.assign(3, 0);
    for (size_t t = 0; t < set.tiles.size(); ++t) {
      wanted.home[t] = random() % 3 == 0 ? static_cast<int32_t>(random() % 3) : current.home[t];
      uint64_t& region = wanted.tile_region_bytes[static_cast<size_t>(wanted.home[t])];
      wanted.offset[t] = region;
      region += (target.tile_bytes(set.tiles[t], 0) + 4095) / 4096 * 4096;
    }
    const Placement kept = keep_places(set, wanted, current, target);
    for (size_t d = 0; d < 3; ++d) {
      ASSERT_LE(kept.tile_region_bytes[d], std::max(wanted.tile_region_bytes[d], current.tile_region_bytes[d]));
    }
    // The planner refuses maps that overlap or leave the grid.
    local_and_link_bytes(set, current, kept, target);
    current = kept;
  }
}

TEST(Placement, SharesAreSaidAsRounded) {
  const TensorTable table = small_table(8, DType::kF32);
  const TileSet set = make_tiles(table, 4);
  const auto shares = [&](SplitMode mode, std::vector<double> parts) { return rounded_shares(set, mode, {parts}, 3); };
  using testing::ElementsAre;
  EXPECT_THAT(shares(SplitMode::kNone, {0, 5, 1}), ElementsAre(0, 1, 0));
  EXPECT_THAT(shares(SplitMode::kLayer, {3, 3, 2}), ElementsAre(0.375, 0.375, 0.25));
  EXPECT_THAT(shares(SplitMode::kLayer, {}), ElementsAre(0.375, 0.25, 0.375));
  EXPECT_THAT(shares(SplitMode::kTensor, {1, 0, 1}), ElementsAre(0.5, 0, 0.5));
  EXPECT_THAT(shares(SplitMode::kTensor, {100, 101, 99}), ElementsAre(0.25, 0.5, 0.25));
  for (const int n_layer : {10, 12, 22, 49}) {  // whose inverses are not exact
    const TensorTable layers = small_table(n_layer, DType::kF32);
    const TileSet tiles = make_tiles(layers, 1);
    EXPECT_THAT(rounded_shares(tiles, SplitMode::kLayer, {{1, 0}}, 2), ElementsAre(1, 0)) << n_layer;
    if (n_layer % 2 == 0) {
      EXPECT_THAT(rounded_shares(tiles, SplitMode::kLayer, {}, 2), ElementsAre(0.5, 0.5)) << n_layer;
    }
  }
}

}  // namespace
}  // namespace tessera

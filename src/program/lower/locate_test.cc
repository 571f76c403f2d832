#include "program/lower/locate.h"

#include <gtest/gtest.h>

#include "program/build/builder.h"

namespace tessera {
namespace {

// Layers of one attention product pair each, two KV heads, a head over 128 rows; any home for any cut.
struct Model {
  TensorTable table;
  Program program;
  std::vector<ValueId> stream;  // the residual stream after each layer
  ValueId norm = -1;            // the norm in front of the head
  ValueId embeddings = -1;      // the norm of rows whose embeddings are wanted

  explicit Model(int n_layer) {
    table.n_vocab = 128;
    table.layers.assign(static_cast<size_t>(n_layer), {2, 0});
    const TensorIndex embed = add("embd", 128, 64, TileKind::kHost, -1, {});
    const TensorIndex weight = add("norm", 1, 64, TileKind::kReplica, -1, {});
    std::vector<std::pair<Weight, Weight>> layers;
    for (int l = 0; l < n_layer; ++l) {
      Weight in;
      in.weight = add("in", 64, 64, TileKind::kAttn, l, CutRule::rows(CutAxis::kAttention, 32));
      Weight out;
      out.weight = add("out", 64, 64, TileKind::kAttn, l, CutRule::columns(CutAxis::kAttention, 32));
      layers.emplace_back(in, out);
    }
    Weight head;
    head.weight = add("head", 128, 64, TileKind::kHead, -1, CutRule::rows(CutAxis::kHead, 1));
    Builder b(table, 64);
    Value x = b.embed(embed);
    for (const auto& [in, out] : layers) {
      x = b.add(x, b.reduce(b.linear(out, b.linear(in, b.rms_norm(x, weight, 1e-5F)))));
      stream.push_back(x.id);
    }
    const Value h = b.rms_norm(x, weight, 1e-5F);
    norm = h.id;
    b.logits(b.linear(head, b.gather_outputs(h)));
    const Value e = b.rms_norm(b.gather_embeddings(x), weight, 1e-5F);
    embeddings = e.id;
    b.embeddings(e);
    program = std::move(b).finish().value();
  }

  TensorIndex add(std::string name, int64_t rows, int64_t columns, TileKind tile, int32_t layer, CutRule cut) {
    TensorSpec spec;
    spec.name = std::move(name);
    spec.rows = rows;
    spec.columns = columns;
    spec.tile = tile;
    spec.layer = layer;
    spec.cut = std::move(cut);
    table.tensors.push_back(std::move(spec));
    return static_cast<TensorIndex>(table.tensors.size() - 1);
  }

  Locations place(const TileSet& tiles, const std::function<int(const Tile&)>& home,
                  bool with_embeddings = false) const {
    Placement placement;
    for (const Tile& tile : tiles.tiles) {
      placement.home.push_back(home(tile));
    }
    return locate(program, tiles, placement, with_embeddings);
  }
};

TEST(Locate, LayerPlacementCopiesTheStreamOnceAtTheBorder) {
  const Model m(4);
  const TileSet tiles = make_tiles(m.table, 2);
  const Locations where = m.place(tiles, [](const Tile& t) { return t.layer >= 0 && t.layer < 2 ? 0 : 1; });
  size_t n_copies = 0;
  for (const ValueLocation& location : where.values) {
    n_copies += location.copies.size();
  }
  EXPECT_EQ(n_copies, 1U);
  const ValueLocation& border = where.values[static_cast<size_t>(m.stream[1])];
  EXPECT_EQ(border.runs, 1U);
  ASSERT_EQ(border.copies.size(), 1U);
  EXPECT_EQ(border.copies[0].from, 0);
  EXPECT_EQ(border.copies[0].to, 1);
  EXPECT_EQ(where.values[static_cast<size_t>(m.stream[0])].runs, 1U) << "device 1 must not recompute device 0's layers";
}

TEST(Locate, TensorPlacementRecomputesTheStreamEverywhere) {
  const Model m(3);
  const TileSet tiles = make_tiles(m.table, 2);
  const Locations where = m.place(tiles, [](const Tile& t) { return t.cut; });
  for (const ValueId x : m.stream) {
    EXPECT_EQ(where.values[static_cast<size_t>(x)].runs, 3U);
    EXPECT_TRUE(where.values[static_cast<size_t>(x)].copies.empty());
  }
  EXPECT_EQ(where.values[static_cast<size_t>(m.norm)].runs, 3U);
}

TEST(Locate, AUserWithoutPiecesGetsACopy) {
  const Model m(2);
  const TileSet tiles = make_tiles(m.table, 2);
  // Layer 0 on devices 0 and 1, layer 1 on device 2, the head on 1.
  const Locations where = m.place(tiles, [](const Tile& t) { return t.layer == 0 ? t.cut : t.layer == 1 ? 2 : 1; });
  const ValueLocation& first = where.values[static_cast<size_t>(m.stream[0])];
  EXPECT_EQ(first.runs, 1U);
  ASSERT_EQ(first.copies.size(), 1U);
  EXPECT_EQ(first.copies[0].to, 2);
  const ValueLocation& second = where.values[static_cast<size_t>(m.stream[1])];
  EXPECT_EQ(second.runs, 4U);
  ASSERT_EQ(second.copies.size(), 1U);
  EXPECT_EQ(second.copies[0].to, 1);
}

TEST(Locate, EmbeddingsComeFromOneDeviceThatHasTheStream) {
  const Model m(3);
  const TileSet tiles = make_tiles(m.table, 2);
  const auto by_cut = [](const Tile& t) { return t.cut; };
  const auto head_apart = [](const Tile& t) { return t.layer < 0 ? 2 : 1; };
  const auto at = static_cast<size_t>(m.embeddings);
  EXPECT_EQ(m.place(tiles, by_cut, true).values[at].runs, 1U);
  EXPECT_EQ(m.place(tiles, head_apart, true).values[at].runs, 2U) << "the stream need not go to the head";
  EXPECT_EQ(m.place(tiles, by_cut).values[at].runs, 0U) << "nobody wants them";
  EXPECT_EQ(m.place(tiles, head_apart, true).values[static_cast<size_t>(m.stream[2])].copies.size(), 1U);
}

// One layer of four experts in two cuts behind one attention product pair.
struct ExpertModel : Model {
  ValueId routing = -1;
  ValueId sum = -1;

  ExpertModel() : Model(1) {
    table.layers[0].n_experts = 4;
    const TensorIndex weight = add("norm2", 1, 64, TileKind::kReplica, -1, {});
    const TensorIndex router = add("router", 4, 64, TileKind::kReplica, -1, {});
    Weight in;
    in.weight = add("in", 64, 64, TileKind::kAttn, 0, CutRule::rows(CutAxis::kAttention, 32));
    Weight out;
    out.weight = add("out", 64, 64, TileKind::kAttn, 0, CutRule::columns(CutAxis::kAttention, 32));
    Weight experts;
    experts.weight = add("experts", 64, 64, TileKind::kExpert, 0, {});
    table.tensors.back().experts.resize(4);
    Weight head;
    head.weight = add("head2", 128, 64, TileKind::kHead, -1, CutRule::rows(CutAxis::kHead, 1));
    Builder b(table, 64);
    Value x = b.embed(0);
    x = b.add(x, b.reduce(b.linear(out, b.linear(in, x))));
    const Value h = b.rms_norm(x, weight, 1e-5F);
    const Value chosen = b.route({0, router, kNoTensor, kNoTensor, {.n_used = 2}}, h);
    routing = chosen.id;
    const Value y = b.reduce(b.expert_sum(b.expert_linear(experts, h, chosen), chosen));
    sum = y.id;
    x = b.add(x, y);
    b.logits(b.linear(head, b.gather_outputs(x)));
    program = std::move(b).finish().value();
  }
};

TEST(Locate, RoutingIsDecidedOnceAndCopied) {
  const ExpertModel m;
  const TileSet tiles = make_tiles(m.table, 2);
  const Locations where = m.place(tiles, [](const Tile& t) { return t.cut; });
  const ValueLocation& routing = where.values[static_cast<size_t>(m.routing)];
  EXPECT_EQ(routing.runs, 1U);
  ASSERT_EQ(routing.copies.size(), 1U);
  EXPECT_EQ(routing.copies[0].to, 1);
  EXPECT_EQ(where.values[static_cast<size_t>(m.sum)].runs, 3U);
}

TEST(Locate, ExpertsElsewhereAreRoutedWhereTheStreamIs) {
  const ExpertModel m;
  const TileSet tiles = make_tiles(m.table, 2);
  const Locations where = m.place(tiles, [](const Tile& t) { return t.kind == TileKind::kExpert ? 2 : 0; });
  const ValueLocation& routing = where.values[static_cast<size_t>(m.routing)];
  EXPECT_EQ(routing.runs, 1U);
  ASSERT_EQ(routing.copies.size(), 1U);
  EXPECT_EQ(routing.copies[0].to, 2);
  EXPECT_EQ(where.values[static_cast<size_t>(m.sum)].runs, 4U);
}

}  // namespace
}  // namespace tessera

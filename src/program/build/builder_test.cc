#include "program/build/builder.h"

#include <gtest/gtest.h>

#include "program/build/kv_classes.h"

namespace tessera {
namespace {

// One layer: 2 KV heads of 8 with 2 query heads each, feed-forward 32, width 16, vocabulary 64.
struct Fixture {
  TensorTable table;
  TensorIndex embed, norm, inv_freq, bias;
  Weight q, k, o, head;

  Fixture() {
    table.layers = {{2, 32}};
    table.n_vocab = 64;
    embed = add("embd", 64, 16, TileKind::kHost, {});
    norm = add("norm", 1, 16, TileKind::kReplica, {});
    inv_freq = add("freq", 1, 4, TileKind::kReplica, {});
    bias = add("bias", 1, 32, TileKind::kReplica, {});
    q.weight = add("q", 32, 16, TileKind::kAttn, CutRule::rows(CutAxis::kAttention, 16));
    k.weight = add("k", 16, 16, TileKind::kAttn, CutRule::rows(CutAxis::kAttention, 8));
    o.weight = add("o", 16, 32, TileKind::kAttn, CutRule::columns(CutAxis::kAttention, 16));
    head.weight = add("head", 64, 16, TileKind::kHead, CutRule::rows(CutAxis::kHead, 1));
  }

  TensorIndex add(std::string name, int64_t rows, int64_t columns, TileKind tile, CutRule cut) {
    TensorSpec spec;
    spec.name = std::move(name);
    spec.rows = rows;
    spec.columns = columns;
    spec.tile = tile;
    spec.layer = tile == TileKind::kAttn ? 0 : -1;
    spec.cut = std::move(cut);
    table.tensors.push_back(std::move(spec));
    return static_cast<TensorIndex>(table.tensors.size() - 1);
  }
};

TEST(Builder, WritesALayer) {
  Fixture f;
  Builder b(f.table, 16);
  const RopeRef rope = b.rope_table(f.inv_freq, 1, 8, false);
  const Value x = b.embed(f.embed);
  const Value h = b.rms_norm(x, f.norm, 1e-5F);
  Value q = b.linear(f.q, h);
  Value k = b.linear(f.k, h);
  const Value v = b.linear(f.k, h);
  Value* const heads[] = {&q, &k};
  b.rope(rope, heads);
  const Value a = b.attention(q, b.append(0, {2, 8, 8, 4}, k, v), 1);
  const Value y = b.add(x, b.reduce(b.linear(f.o, a)));
  b.logits(b.linear(f.head, b.gather_outputs(y)));
  const auto program = std::move(b).finish();
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(program->values[static_cast<size_t>(a.id)].width, 16);  // two query heads of 8 per KV head
  EXPECT_EQ(program->values[static_cast<size_t>(y.id)].kind, ValueKind::kWhole);
  EXPECT_EQ(kv_classes(*program).windows, std::vector<int64_t>{4});
}

TEST(Builder, EpilogueFollowsAProductCutByRowsAndWaitsForTheReduceOtherwise) {
  Fixture f;
  f.q.bias = f.bias;
  Builder b(f.table, 16);
  const Value q = b.linear(f.q, b.embed(f.embed));
  const auto program = std::move(b).finish();
  ASSERT_TRUE(program.ok());
  const Node& last = program->nodes.back();
  EXPECT_TRUE(std::holds_alternative<AffineNode>(last.op));
  EXPECT_EQ(last.outputs[0], q.id);
}

TEST(Builder, RemembersTheFirstMistake) {
  Fixture f;
  const auto message_of = [&](auto write) {
    Builder b(f.table, 16);
    write(b);
    const auto program = std::move(b).finish();
    return program.ok() ? std::string() : program.status().message();
  };
  EXPECT_NE(message_of([&](Builder& b) { b.linear(f.o, b.embed(f.embed)); }).find("tensor o is cut"),
            std::string::npos);
  EXPECT_NE(message_of([&](Builder& b) { b.rms_norm(b.embed(f.embed), f.bias, 1); }).find("tensor bias has 32"),
            std::string::npos);
  EXPECT_NE(message_of([&](Builder& b) { b.rope_table(f.inv_freq, 1, 4, true); }).find("heads of 4"),
            std::string::npos);
  EXPECT_NE(message_of([&](Builder& b) { b.reduce(b.embed(f.embed)); }).find("partial"), std::string::npos);
  EXPECT_NE(message_of([&](Builder& b) { b.logits(b.embed(f.embed)); }).find("vocabulary"), std::string::npos);
  EXPECT_NE(message_of([&](Builder& b) {
              const Value q = b.linear(f.q, b.embed(f.embed));
              b.append(0, {2, 8, 8, 0}, q, q);
            }).find("layer 0"),
            std::string::npos);
  // Rows of outputs stand for fewer rows than tokens: ops that count tokens refuse them.
  EXPECT_NE(message_of([&](Builder& b) {
              const Value q = b.linear(f.q, b.gather_outputs(b.embed(f.embed)));
              b.linear(f.o, q);
            }).find("tensor o would multiply outputs"),
            std::string::npos);
  EXPECT_NE(message_of([&](Builder& b) {
              const Value x = b.embed(f.embed);
              b.add(x, b.gather_outputs(x));
            }).find("add of rows"),
            std::string::npos);
  EXPECT_NE(message_of([&](Builder& b) {
              const Value q = b.linear(f.q, b.gather_outputs(b.embed(f.embed)));
              b.glu(GluActivation::kSilu, q, q);
            }).find("gate and up"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera

#include "runtime/embedding.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Rows = std::vector<float>;

TEST(EmbeddingPoolTest, KeepsTheMeanTheLastOrAll) {
  const Rows rows[] = {{1, -2}, {3, 0}, {5, 8}};
  const std::pair<Pooling, Rows> cases[] = {
      {Pooling::kNone, {1, -2, 3, 0, 5, 8}}, {Pooling::kMean, {3, 2}}, {Pooling::kLast, {5, 8}}};
  for (const auto& [pooling, expected] : cases) {
    EmbeddingPool pool(pooling, 3);
    EXPECT_EQ(pool.wants(0), pooling != Pooling::kLast);
    EXPECT_TRUE(pool.wants(2));
    for (int round = 0; round < 2; ++round) {  // position 0 begins anew
      for (size_t i = 0; i < 3; ++i) {
        if (pool.wants(static_cast<int64_t>(i))) {
          pool.add(static_cast<int64_t>(i), rows[i]);
        }
      }
    }
    EXPECT_EQ(pool.result(), expected) << pooling_name(pooling);
  }
}

TEST(EmbeddingPoolTest, AskedForByName) {
  for (const Pooling pooling : {Pooling::kNone, Pooling::kMean, Pooling::kLast}) {
    EXPECT_EQ(parse_pooling(pooling_name(pooling)).value(), pooling);
  }
  EXPECT_EQ(parse_pooling("cls").status().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(parse_pooling("average").status().code(), ErrorCode::kInvalidArgument);
}

TEST(NormalizeEmbeddingTest, ByEachNorm) {
  const std::pair<int32_t, Rows> cases[] = {
      {-1, {3, -4}}, {0, {24570, -32760}}, {1, {3.0F / 7, -4.0F / 7}}, {2, {0.6F, -0.8F}}};
  for (const auto& [norm, expected] : cases) {
    Rows x = {3, -4};
    normalize_embedding(x, norm);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_FLOAT_EQ(x[i], expected[i]) << norm;
    }
  }
  Rows cubic = {3, -4};
  normalize_embedding(cubic, 3);
  EXPECT_NEAR(cubic[0] * cubic[0] * cubic[0] - cubic[1] * cubic[1] * cubic[1], 1, 1e-6);
  // What a sum of squares in floats would lose.
  Rows tiny = {3e-30F, 4e-30F};
  normalize_embedding(tiny, 2);
  EXPECT_FLOAT_EQ(tiny[0], 0.6F);
  Rows large = {3e30F, 4e30F};
  normalize_embedding(large, kEmbeddingNormMax);
  EXPECT_NEAR(large[1], 1, 1e-6);
  Rows zeros = {0, 0};
  normalize_embedding(zeros, 2);
  EXPECT_EQ(zeros, Rows({0, 0}));
}

}  // namespace
}  // namespace tessera

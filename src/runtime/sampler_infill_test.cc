// By hand; against the reference engine in sampler_golden_test.cc.

#include "runtime/sampler_infill.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "runtime/sampler.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

// 0 "hel", 1 "hell", 2 "hello", 3 "dummy", 4 the end, 5 "x".
std::unique_ptr<Tokenizer> small_tokenizer() {
  Vocab vocab;
  vocab.model = "llama";
  vocab.tokens = {"hel", "hell", "hello", "dummy", "</s>", "x"};
  vocab.scores.assign(vocab.tokens.size(), 0);
  vocab.token_types.assign(vocab.tokens.size(), TokenType::kNormal);
  vocab.token_types[4] = TokenType::kControl;
  vocab.eos_id = 4;
  auto made = Tokenizer::create(std::move(vocab));
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

std::vector<float> logits_of(const std::map<int32_t, double>& probabilities) {
  std::vector<float> logits(6, -INFINITY);
  for (const auto& [id, probability] : probabilities) {
    logits[static_cast<size_t>(id)] = static_cast<float>(std::log(probability));
  }
  return logits;
}

class SamplerInfill : public testing::Test {
 protected:
  SamplerInfill() { options_.samplers = {SamplerStep::kInfill}; }

  std::vector<int32_t> left(const std::map<int32_t, double>& probabilities) {
    Sampler sampler(options_, {}, std::nullopt, tokenizer_.get());
    const std::vector<float> logits = logits_of(probabilities);
    std::vector<int32_t> ids;
    for (const TokenProbability& t : sampler.distribution(logits)) {
      ids.push_back(t.id);
    }
    return ids;
  }

  std::unique_ptr<Tokenizer> tokenizer_ = small_tokenizer();
  SamplerOptions options_;
};

TEST_F(SamplerInfill, TextsThatBeginAlikeCountTogether) {
  EXPECT_THAT(left({{0, 0.4}, {1, 0.25}, {2, 0.15}, {3, 0.2}}), ElementsAre(0));  // 0.8, above half of what is left
  EXPECT_THAT(left({{0, 0.2}, {1, 0.3}, {3, 0.45}, {5, 0.05}}), UnorderedElementsAre(1, 3));  // in the likelier one
  EXPECT_THAT(left({{2, 0.35}, {3, 0.35}, {5, 0.3}}), UnorderedElementsAre(2, 3, 5));
}

TEST_F(SamplerInfill, AnEndThatIsLikelyEnoughIsAllThatStays) {
  EXPECT_THAT(left({{0, 0.8}, {4, 0.2}}), ElementsAre(4));       // 3 * 0.2 * 2 > 0.8
  EXPECT_THAT(left({{0, 0.99}, {4, 0.01}}), ElementsAre(0, 4));  // an end is never too unlikely
  EXPECT_THAT(left({{4, 1.0}}), ElementsAre(4));
}

TEST_F(SamplerInfill, EndsWhereNothingIsLikelyAndThatIsNotBanned) {
  // Ten texts of 0.1 each: none is likely, so it ends, or takes the best.
  Vocab vocab;
  vocab.model = "llama";
  for (char c = 'a'; c < 'k'; ++c) {
    vocab.tokens.emplace_back(1, c);
  }
  vocab.tokens.emplace_back("</s>");
  vocab.scores.assign(11, 0);
  vocab.token_types.assign(11, TokenType::kNormal);
  vocab.token_types[10] = TokenType::kControl;
  vocab.eos_id = 10;
  const auto made = Tokenizer::create(std::move(vocab));
  ASSERT_TRUE(made.ok());
  std::vector<float> logits(11, 0);
  logits[3] = 0.01F;
  logits[10] = -30;
  EXPECT_EQ(Sampler(options_, {}, std::nullopt, made->get()).sample(logits), 10);
  options_.logit_bias = {{10, -INFINITY}};
  EXPECT_EQ(Sampler(options_, {}, std::nullopt, made->get()).sample(logits), 3);
  options_.logit_bias = {};
  logits[10] = -INFINITY;
  EXPECT_EQ(Sampler(options_, {}, std::nullopt, made->get()).sample(logits), 3);
  EXPECT_EQ(Sampler(options_, {}, std::nullopt, made->get()).sample(std::vector<float>(11, -INFINITY)), kNoToken);
}

TEST_F(SamplerInfill, MergesTheBestWhereverTheyStand) {
  Vocab vocab;
  vocab.model = "llama";
  for (size_t i = 0; i < 2 * kInfillMerged; ++i) {
    vocab.tokens.push_back("<" + std::to_string(i) + ">");
  }
  vocab.tokens.back() = "ab";
  vocab.tokens.emplace_back("a");
  vocab.eos_id = 0;
  vocab.scores.assign(vocab.tokens.size(), 0);
  vocab.token_types.assign(vocab.tokens.size(), TokenType::kNormal);
  const auto made = Tokenizer::create(std::move(vocab));
  ASSERT_TRUE(made.ok());
  std::vector<float> logits(2 * kInfillMerged + 1, 0);
  logits[0] = -INFINITY;
  logits[2 * kInfillMerged - 1] = 5.2F;  // 0.124, and the next 0.152: together enough
  logits[2 * kInfillMerged] = 5.4F;
  Sampler sampler(options_, {}, std::nullopt, made->get());
  const auto left = sampler.distribution(logits);
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].id, 2 * kInfillMerged);
}

TEST_F(SamplerInfill, DoesNothingWithoutAVocabulary) {
  Sampler sampler(options_);
  EXPECT_EQ(sampler.distribution(logits_of({{0, 0.9}, {4, 0.1}})).size(), 2U);
}

}  // namespace
}  // namespace tessera

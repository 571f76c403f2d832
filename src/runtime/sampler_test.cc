#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <numeric>
#include <random>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Everything off: what is left is a draw from the softmax.
SamplerOptions plain(uint64_t seed = 1) {
  return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed};
}

std::vector<int32_t> ids_of(std::span<const TokenProbability> distribution) {
  std::vector<int32_t> ids;
  for (const TokenProbability& t : distribution) {
    ids.push_back(t.id);
  }
  return ids;
}

std::vector<int32_t> kept(const SamplerOptions& options, const std::vector<float>& logits) {
  return ids_of(Sampler(options).distribution(logits));
}

// Over tokens "0", "1" and so on; 99 ends.
GrammarMatcher matcher_of(std::string_view gbnf, int32_t n_vocab) {
  auto grammar = Grammar::parse(gbnf);
  CHECK(grammar.ok());
  std::vector<std::string> pieces;
  for (int32_t id = 0; id < n_vocab; ++id) {
    pieces.push_back(id == 99 ? "" : std::to_string(id) + ";");
  }
  const std::vector<int32_t> end_ids = {99};
  return GrammarMatcher(std::make_shared<GrammarMasks>(*grammar, std::make_shared<const TokenTrie>(pieces, end_ids)));
}

TEST(Sampler, ForcedTokensMoveTheGrammar) {
  auto grammar = Grammar::parse("root ::= \"3;\" [57] \";\"");
  ASSERT_TRUE(grammar.ok());
  std::vector<std::string> pieces;
  for (int32_t id = 0; id < 10; ++id) {
    pieces.push_back(std::to_string(id) + ";");
  }
  const auto masks =
      std::make_shared<GrammarMasks>(*grammar, std::make_shared<const TokenTrie>(pieces, std::vector{9}));
  for (const bool has_sampled : {false, true}) {  // before the grammar has begun, too
    Sampler sampler(plain());
    EXPECT_EQ(sampler.grammar_state(), Sampler::GrammarState::kNone);
    sampler.set_grammar(masks);
    sampler.accept(std::vector{1, 2});  // the prompt
    EXPECT_EQ(sampler.grammar_state(), Sampler::GrammarState::kIncomplete);
    if (has_sampled) {
      EXPECT_EQ(sampler.sample(std::vector<float>(10)), 3);
    }
    sampler.force(3);
    EXPECT_THAT(sampler.sample(std::vector<float>(10)), testing::AnyOf(5, 7));
    sampler.force(5);
    EXPECT_EQ(sampler.grammar_state(), Sampler::GrammarState::kComplete);
  }
}

TEST(Sampler, AGrammarLimitsWhatIsChosen) {
  std::vector<float> logits(100);
  std::iota(logits.begin(), logits.end(), 0.0F);
  logits[5] = kNan;
  SamplerOptions greedy = plain();
  greedy.temperature = 0;
  // Few allowed tokens and many: two ways to apply a mask.
  for (const auto& [gbnf, best] :
       {std::pair("root ::= [357] \";\" [0-8] \"1;\"", 7), std::pair("root ::= [0-8] [0-9]? \";\" [0-8] \"1;\"", 89)}) {
    Sampler sampler(greedy, {}, matcher_of(gbnf, 100));
    const std::vector<int32_t> prompt = {1, 2, 99};
    sampler.accept(prompt);  // no part of the text
    EXPECT_EQ(sampler.grammar_state(), Sampler::GrammarState::kIncomplete);
    EXPECT_EQ(sampler.sample(logits), best);
    const auto again = sampler.distribution(logits);
    EXPECT_EQ(ids_of(again), std::vector<int32_t>{best});
    sampler.accept({&best, 1});
    EXPECT_EQ(sampler.sample(logits), 81);
    const int32_t next = 81;
    sampler.accept({&next, 1});
    EXPECT_EQ(sampler.grammar_state(), Sampler::GrammarState::kComplete);
    EXPECT_EQ(sampler.sample(logits), 99);
    sampler.accept({&next, 1});
    EXPECT_EQ(sampler.grammar_state(), Sampler::GrammarState::kBroken);
    EXPECT_EQ(sampler.sample(logits), kNoToken);
  }
}

TEST(Sampler, AMaskComesBeforeBiasesAndTheChain) {
  std::vector<float> logits(100);
  std::iota(logits.begin(), logits.end(), 0.0F);
  SamplerOptions options = plain();
  options.top_k = 2;
  options.logit_bias = {{3, -kInf}, {1, 50}, {50, 1000}};
  Sampler sampler(options, {}, matcher_of("root ::= [0-4] \";\"", 100));
  EXPECT_THAT(ids_of(sampler.distribution(logits)), ElementsAre(1, 4));
}

TEST(Sampler, WithoutAGrammarThereIsNoState) {
  EXPECT_EQ(Sampler(plain()).grammar_state(), Sampler::GrammarState::kNone);
}

TEST(Sampler, LogitsBeyondTheVocabularyAreDropped) {
  const std::vector<float> logits(200, 1.0F);
  Sampler sampler(plain(), {}, matcher_of("root ::= .*", 100));
  EXPECT_EQ(sampler.distribution(logits).size(), 100U);
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdAmongEquals) {
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(argmax(std::vector<float>{kNan, -5, kNan, -5}), 1);
  EXPECT_EQ(argmax(std::vector<float>{-kInf, kNan}), kNoToken);
  EXPECT_EQ(argmax({}), kNoToken);
  for (const float temperature : {0.0F, -1.0F, kNan}) {
    Sampler sampler({.temperature = temperature, .top_k = 1, .top_p = 0.1F, .min_p = 1, .seed = 3});
    EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2, 3}), 1);
    const auto d = sampler.distribution(std::vector<float>{1, 3, 2, 3});
    ASSERT_EQ(d.size(), 1U);
    EXPECT_EQ(d[0].id, 1);
    EXPECT_EQ(d[0].probability, 1);
    SamplerOptions o = plain();
    o.temperature = temperature;
    EXPECT_THAT(kept(o, {1, 3, 2, 3}), ElementsAre(1));
  }
}

TEST(Sampler, DrawsThePublishedSequenceOfItsGenerator) {
  // SplitMix64 from 1234567 gives 6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
  // 16408922859458223821. Over 1024 equal logits the id is the upper ten bits.
  Sampler sampler(plain(1234567));
  const std::vector<float> logits(1024, 0.5F);
  std::vector<int32_t> ids;
  for (int i = 0; i < 5; ++i) {
    ids.push_back(sampler.sample(logits));
  }
  EXPECT_THAT(ids, ElementsAre(6457827717110365317U >> 54, 3203168211198807973U >> 54, 9817491932198370423U >> 54,
                               4593380528125082431U >> 54, 16408922859458223821U >> 54));
}

TEST(Sampler, TopKKeepsTheLargestAndTheLowestIdsAmongEquals) {
  SamplerOptions o = plain();
  o.top_k = 3;
  EXPECT_THAT(kept(o, {1, 5, 3, 4, 2}), ElementsAre(1, 3, 2));
  EXPECT_THAT(kept(o, {1, 2, 2, 2, 2, 1}), ElementsAre(1, 2, 3));
  EXPECT_THAT(kept(o, {2, 1, 1, 3, 1, 1}), ElementsAre(3, 0, 1));
  EXPECT_THAT(kept(o, {kInf, kInf, 1, kInf, kInf}), ElementsAre(0, 1, 3));
  o.top_k = 9;  // more than there are
  EXPECT_THAT(kept(o, {1, 5, 3}), ElementsAre(0, 1, 2));
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  const std::vector<float> logits = {std::log(0.1F), std::log(0.5F), std::log(0.15F), std::log(0.25F)};
  SamplerOptions o = plain();
  for (const auto& [p, n] :
       std::map<float, size_t>{{-1.0F, 1}, {0, 1}, {0.49F, 1}, {0.51F, 2}, {0.74F, 2}, {0.76F, 3}, {0.91F, 4}}) {
    o.top_p = p;
    EXPECT_EQ(kept(o, logits).size(), n) << p;
  }
  o.top_p = 0.76F;
  EXPECT_THAT(kept(o, logits), ElementsAre(1, 3, 2));
  Sampler sampler(o);  // used again with other logits, as from token to token
  EXPECT_THAT(ids_of(sampler.distribution(logits)), ElementsAre(1, 3, 2));
  EXPECT_THAT(ids_of(sampler.distribution(std::vector<float>(logits.rbegin(), logits.rend()))), ElementsAre(2, 0, 1));
  o.top_k = 2;  // comes first: of the two that are left, the best has two thirds
  o.top_p = 0.66F;
  EXPECT_THAT(kept(o, logits), ElementsAre(1));
}

TEST(Sampler, MinPKeepsThoseNearTheBest) {
  const std::vector<float> logits = {std::log(0.1F), std::log(0.5F), std::log(0.15F), std::log(0.25F)};
  SamplerOptions o = plain();
  o.min_p = 0.49F;
  EXPECT_THAT(kept(o, logits), ElementsAre(1, 3));
  o.min_p = 0.51F;
  EXPECT_THAT(kept(o, logits), ElementsAre(1));
  o.min_p = 7;
  EXPECT_THAT(kept(o, logits), ElementsAre(1));
}

TEST(Sampler, TemperatureComesLast) {
  // At temperature 100 all four would be nearly equal; the filters still see the model's own probabilities.
  const std::vector<float> logits = {std::log(0.1F), std::log(0.5F), std::log(0.15F), std::log(0.25F)};
  SamplerOptions o = plain();
  o.temperature = 100;
  o.top_p = 0.7F;
  Sampler sampler(o);
  const auto d = sampler.distribution(logits);
  ASSERT_THAT(ids_of(d), ElementsAre(1, 3));
  EXPECT_NEAR(d[0].probability, 0.5, 0.01);
  EXPECT_NEAR(d[1].probability, 0.5, 0.01);
}

TEST(Sampler, ProbabilitiesAreTheSoftmaxAtItsTemperature) {
  std::vector<float> logits;
  for (int i = 0; i < 200; ++i) {
    logits.push_back(-static_cast<float>(i) * 3.7F + 10);
  }
  for (const float temperature : {0.1F, 0.8F, 1.0F, 3.0F, 1000.0F}) {
    SamplerOptions o = plain();
    o.temperature = temperature;
    Sampler sampler(o);
    const auto d = sampler.distribution(logits);
    ASSERT_EQ(d.size(), logits.size());
    double total = 0;
    for (const float x : logits) {
      total += std::exp((static_cast<double>(x) - logits[0]) / temperature);
    }
    for (size_t i = 0; i < logits.size(); ++i) {
      const double expected = std::exp((static_cast<double>(logits[i]) - logits[0]) / temperature) / total;
      ASSERT_NEAR(d[i].probability, expected, expected * 1e-13 + 1e-320) << temperature << " " << i;
    }
  }
}

TEST(Sampler, DrawsWithTheseProbabilities) {
  const std::vector<float> logits = {std::log(0.1F), std::log(0.5F), std::log(0.15F), std::log(0.25F)};
  Sampler sampler(plain(99));
  constexpr int kDraws = 40000;
  std::map<int32_t, int> counts;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[sampler.sample(logits)];
  }
  for (const auto& [id, p] : std::map<int32_t, double>{{0, 0.1}, {1, 0.5}, {2, 0.15}, {3, 0.25}}) {
    const double sigma = std::sqrt(kDraws * p * (1 - p));
    EXPECT_NEAR(counts[id], kDraws * p, 4 * sigma) << id;
  }
}

TEST(Sampler, NeverChoosesWhatIsNoNumber) {
  for (const int32_t top_k : {0, 2, 3}) {
    SamplerOptions o = plain();
    o.top_k = top_k;
    Sampler sampler(o);
    EXPECT_THAT(ids_of(sampler.distribution(std::vector<float>{kNan, 1, -kInf, 1, kNan})), ElementsAre(1, 3));
    for (int i = 0; i < 100; ++i) {
      const int32_t id = sampler.sample(std::vector<float>{kNan, 1, -kInf, 1, kNan});
      EXPECT_TRUE(id == 1 || id == 3) << id;
    }
    EXPECT_EQ(sampler.sample(std::vector<float>{0, kInf, kNan}), 1);
    EXPECT_EQ(sampler.sample(std::vector<float>{kNan, -kInf, kNan}), kNoToken);
    EXPECT_EQ(sampler.sample({}), kNoToken);
  }
  for (const float odd : {kNan, kInf, -kInf}) {
    Sampler sampler({.temperature = kInf, .top_k = -5, .top_p = odd, .min_p = odd, .seed = 1});
    const int32_t id = sampler.sample(std::vector<float>{0, 1, 2});
    EXPECT_TRUE(id >= 0 && id < 3) << id;
  }
  Sampler cold({.temperature = 1e-38F, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 1});
  EXPECT_EQ(cold.sample(std::vector<float>{0, 1, 0.9F}), 1);
}

TEST(Sampler, OneSeedGivesOneSequence) {
  std::mt19937_64 random(5);
  std::vector<float> logits(1000);
  for (float& x : logits) {
    x = static_cast<float>(random() % 1000) / 100;
  }
  const auto draw = [&](uint64_t seed) {
    Sampler sampler({.seed = seed});
    std::vector<int32_t> ids;
    for (int i = 0; i < 50; ++i) {
      ids.push_back(sampler.sample(logits));
    }
    return ids;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
  const Sampler a({.seed = kRandomSeed});
  const Sampler b({.seed = kRandomSeed});
  EXPECT_NE(a.seed(), b.seed());
  EXPECT_NE(a.seed(), kRandomSeed);
  EXPECT_EQ(draw(a.seed()), draw(a.seed()));
}

// The chain as plainly as it can be said: sort everything, then cut.
std::vector<int32_t> naive_chain(const SamplerOptions& o, const std::vector<float>& logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](int32_t id) { return static_cast<double>(logits[static_cast<size_t>(id)]); };
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  if (o.top_k > 0) {
    ids.resize(std::min(ids.size(), static_cast<size_t>(o.top_k)));
  }
  if (o.top_p < 1) {
    double total = 0;
    for (const int32_t id : ids) {
      total += std::exp(logit(id));
    }
    double sum = 0;
    size_t n = 0;
    while (n < ids.size() && (n == 0 || sum < static_cast<double>(o.top_p) * total)) {
      sum += std::exp(logit(ids[n++]));
    }
    ids.resize(n);
  }
  std::erase_if(
      ids, [&](int32_t id) { return std::exp(logit(id)) < static_cast<double>(o.min_p) * std::exp(logit(ids[0])); });
  std::sort(ids.begin(), ids.end());
  return ids;
}

TEST(Sampler, AgreesWithANaiveChain) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<float> logits(random() % 2000 + 1);
    const uint64_t n_levels = seed % 3 == 0 ? 20 : 100000;  // few levels: many ties
    for (float& x : logits) {
      x = static_cast<float>(random() % n_levels) / static_cast<float>(n_levels) * static_cast<float>(seed % 12);
    }
    SamplerOptions o = plain();
    o.top_k = random() % 2 == 0 ? 0 : static_cast<int32_t>(random() % 300);
    // Odd sevenths: no sum of equal probabilities falls on the limit itself.
    o.top_p = random() % 3 == 0 ? 1 : static_cast<float>(random() % 7) / 7 + 0.0123F;
    o.min_p = random() % 2 == 0 ? 0 : static_cast<float>(random() % 7) / 7 + 0.0123F;
    std::vector<int32_t> ids = kept(o, logits);
    std::sort(ids.begin(), ids.end());
    ASSERT_EQ(ids, naive_chain(o, logits)) << "seed " << seed;
  }
}

TEST(Sampler, FindsTheBestOfManyInAnyOrder) {
  // Ascending logits are the worst case of the selection.
  std::vector<float> logits(262144);
  std::iota(logits.begin(), logits.end(), 0.0F);
  SamplerOptions o = plain();
  o.top_k = 3;
  EXPECT_THAT(kept(o, logits), ElementsAre(262143, 262142, 262141));
  std::reverse(logits.begin(), logits.end());
  EXPECT_THAT(kept(o, logits), ElementsAre(0, 1, 2));
  EXPECT_THAT(Sampler(o).distribution({}), IsEmpty());
}

// ---- the chain as a whole; single steps have tests of their own

const std::vector<float> kFour = {std::log(0.1F), std::log(0.5F), std::log(0.15F), std::log(0.25F)};

TEST(Sampler, StepsRunInTheOrderGiven) {
  SamplerOptions o = plain();
  o.top_k = 2;
  o.top_p = 0.66F;
  o.samplers = {SamplerStep::kTopK, SamplerStep::kTopP};  // of the two that are left the best has 2/3
  EXPECT_THAT(kept(o, kFour), ElementsAre(1));
  o.samplers = {SamplerStep::kTopP, SamplerStep::kTopK};
  EXPECT_THAT(kept(o, kFour), ElementsAre(1, 3));
  o.samplers = {SamplerStep::kTopP};
  EXPECT_THAT(kept(o, kFour), ElementsAre(1, 3));
  o.samplers = {};
  EXPECT_EQ(kept(o, kFour).size(), 4U);
  o.temperature = 0;  // a step like any other: where it is left out, so is its effect
  EXPECT_EQ(kept(o, kFour).size(), 4U);
  o.samplers = {SamplerStep::kTopK, SamplerStep::kTopK, SamplerStep::kTemperature, SamplerStep::kTemperature};
  EXPECT_THAT(kept(o, kFour), ElementsAre(1));
}

TEST(Sampler, TemperatureBeforeAFilterChangesWhatItSees) {
  SamplerOptions o = plain();
  o.temperature = 0.1F;
  o.min_p = 0.1F;
  EXPECT_EQ(kept(o, kFour).size(), 4U);
  o.samplers = {SamplerStep::kTemperature, SamplerStep::kMinP};
  EXPECT_THAT(kept(o, kFour), ElementsAre(1));
}

TEST(Sampler, GreedyHeedsPenaltiesBiasesAndXtc) {
  SamplerOptions o = plain();
  o.temperature = 0;
  o.logit_bias = {{1, -kInf}};
  EXPECT_THAT(kept(o, kFour), ElementsAre(3));
  o.logit_bias = {{0, kInf}};
  EXPECT_THAT(kept(o, kFour), ElementsAre(0));
  o.logit_bias = {};
  o.presence_penalty = 5;
  {
    Sampler sampler(o);
    const std::vector<int32_t> seen = {1, 3};
    sampler.accept(seen);
    EXPECT_THAT(ids_of(sampler.distribution(kFour)), ElementsAre(2));
    o.samplers = {SamplerStep::kTemperature, SamplerStep::kPenalties};  // too late
    Sampler late(o);
    late.accept(seen);
    EXPECT_THAT(ids_of(late.distribution(kFour)), ElementsAre(1));
  }
  o = plain();
  o.temperature = 0;
  o.xtc_probability = 1;  // of .5 and .25 the lesser stays
  o.xtc_threshold = 0.2F;
  EXPECT_THAT(kept(o, kFour), ElementsAre(3));
  o.top_k = 1;  // leaves nothing to exclude
  EXPECT_THAT(kept(o, kFour), ElementsAre(1));
}

TEST(Sampler, PenaltiesSeeWhatWasAccepted) {
  SamplerOptions o = plain();
  o.frequency_penalty = 1;
  o.repeat_last_n = 2;
  Sampler sampler(o);
  const std::vector<float> equal = {0, 0, 0};
  const auto p0 = [&] { return sampler.distribution(equal)[0].probability; };
  EXPECT_NEAR(p0(), 1.0 / 3, 1e-12);
  sampler.accept(std::vector<int32_t>{0});
  EXPECT_NEAR(p0(), std::exp(-1) / (2 + std::exp(-1)), 1e-12);
  sampler.accept(std::vector<int32_t>{0});
  EXPECT_NEAR(p0(), std::exp(-2) / (2 + std::exp(-2)), 1e-12);
  sampler.accept(std::vector<int32_t>{1, 2});  // the zeros have left the window
  EXPECT_NEAR(p0(), 1 / (1 + 2 * std::exp(-1)), 1e-12);
}

TEST(Sampler, DryWorksThroughTheChain) {
  SamplerOptions o = plain();
  o.temperature = 0;
  o.dry_multiplier = 10;
  EXPECT_TRUE(Sampler::uses_dry(o));
  const std::vector<int32_t> history = {0, 1, 2, 3, 0, 1, 2};  // 3 would go on repeating
  const std::vector<float> logits = {0, 0, 0, 5, 1};
  Sampler sampler(o);
  sampler.accept(history);
  EXPECT_EQ(sampler.sample(logits), 4);
  DryBreakers breakers;
  breakers.add(std::vector<int32_t>{2});
  Sampler broken(o, breakers);
  broken.accept(history);
  EXPECT_EQ(broken.sample(logits), 3);
  o.mirostat = 2;  // has no penalties, as in the reference
  EXPECT_FALSE(Sampler::uses_dry(o));
}

TEST(Sampler, XtcStrikesAsOftenAsItsProbability) {
  SamplerOptions o = plain(5);
  o.xtc_probability = 0.3F;
  o.xtc_threshold = 0.2F;
  Sampler sampler(o);
  constexpr int kDraws = 10000;
  int struck = 0;
  for (int i = 0; i < kDraws; ++i) {
    const bool strikes = sampler.distribution(kFour).size() == 3;
    EXPECT_EQ(sampler.distribution(kFour).size() == 3, strikes);  // looking draws nothing
    const int32_t id = sampler.sample(kFour);
    ASSERT_FALSE(strikes && id == 1);
    struck += strikes ? 1 : 0;
  }
  EXPECT_NEAR(struck, kDraws * 0.3, 4 * std::sqrt(kDraws * 0.3 * 0.7));
}

TEST(Sampler, MirostatHoldsTheSurpriseNearItsAim) {
  std::mt19937 random(4);
  std::vector<float> logits(2000);
  for (float& x : logits) {
    x = static_cast<float>(random() % 1000) / 100;
  }
  Sampler all(plain());
  std::map<int32_t, double> surprise;  // bits, by the model's own probabilities
  for (const TokenProbability& t : all.distribution(logits)) {
    surprise[t.id] = -std::log2(t.probability);
  }
  for (const int32_t version : {1, 2}) {
    for (const float tau : {8.5F, 9.5F}) {
      SamplerOptions o = plain(11);
      o.mirostat = version;
      o.mirostat_tau = tau;
      o.top_k = 1;  // has no effect
      Sampler sampler(o);
      double sum = 0;
      constexpr int kDraws = 2000;
      for (int i = 0; i < kDraws; ++i) {
        const int32_t id = sampler.sample(logits);
        ASSERT_TRUE(surprise.contains(id));
        sum += i < kDraws / 2 ? 0 : surprise[id];
      }
      EXPECT_NEAR(sum / (kDraws / 2), tau, 0.75) << version;
    }
  }
}

TEST(Sampler, MirostatTakesThePlaceOfEveryStepButTemperature) {
  SamplerOptions o = plain();
  o.mirostat = 2;
  o.temperature = 0.5F;
  const auto weights = [](const SamplerOptions& options) {
    std::vector<double> p;
    Sampler sampler(options);
    sampler.accept(std::vector<int32_t>{1, 1});
    for (const TokenProbability& t : sampler.distribution(kFour)) {
      p.push_back(t.probability);
    }
    return p;
  };
  const std::vector<double> alone = weights(o);
  EXPECT_EQ(alone.size(), 4U);
  EXPECT_NEAR(alone[1] / alone[3], 4, 1e-6);  // (0.5 / 0.25)^(1 / 0.5)
  o.dynatemp_range = 0.4F;
  o.top_k = 1;
  o.presence_penalty = 9;
  o.samplers = {};
  EXPECT_EQ(weights(o), alone);
}

TEST(Sampler, ExtremeSettingsStillDraw) {
  for (const SamplerSetting& setting : sampler_settings()) {
    for (const double value : {setting.min, setting.max}) {
      for (const int32_t mirostat : {0, 1, 2}) {
        SamplerOptions o = plain();
        o.mirostat = mirostat;
        o.repeat_penalty = 1.1F;
        o.dry_multiplier = 1;
        o.dynatemp_range = 0.5F;
        o.xtc_probability = 1;
        ASSERT_TRUE(set_sampler_option(o, setting, value).ok());
        Sampler sampler(o);
        sampler.accept(std::vector<int32_t>(20, 1));
        for (int i = 0; i < 5; ++i) {
          const int32_t id = sampler.sample(kFour);
          ASSERT_TRUE(id >= 0 && id < 4) << setting.name << " " << value << " " << mirostat;
          sampler.accept({&id, 1});
        }
      }
    }
  }
}

TEST(Sampler, TemperaturesMultiplyWithoutEnd) {
  for (const float temperature : {1e-38F, 3e38F, kInf}) {
    SamplerOptions o = plain();
    o.temperature = temperature;
    o.min_p = 1;
    o.samplers.assign(kMaxSamplerSteps, SamplerStep::kTemperature);
    o.samplers.back() = SamplerStep::kMinP;
    EXPECT_EQ(kept(o, {1, 3, 3, 2}),
              temperature < 1 ? std::vector<int32_t>({1, 2}) : std::vector<int32_t>({0, 1, 2, 3}));
  }
}

TEST(Sampler, NothingIsLeftWhenAllIsBanned) {
  SamplerOptions o = plain();
  for (int32_t id = 0; id < 4; ++id) {
    o.logit_bias.push_back({id, -kInf});
  }
  for (const float temperature : {0.0F, 1.0F}) {
    o.temperature = temperature;
    EXPECT_EQ(Sampler(o).sample(kFour), kNoToken);
    EXPECT_THAT(kept(o, kFour), IsEmpty());
  }
}

}  // namespace
}  // namespace tessera

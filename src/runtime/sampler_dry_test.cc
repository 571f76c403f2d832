#include "runtime/sampler_dry.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>

namespace tessera {
namespace {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr size_t kVocab = 50;

// What apply() subtracts, by token; multiples of the multiplier.
std::map<int32_t, double> penalties(const DryPenalty& dry, const std::vector<int32_t>& history,
                                    const DryBreakers& breakers = {}) {
  Candidates candidates;
  const std::vector<float> logits(kVocab, 0.0F);
  candidates.reset(logits);
  std::vector<int32_t> scratch;
  dry.apply(candidates, history, breakers, scratch);
  std::map<int32_t, double> found;
  for (const TokenProbability& t : candidates.list()) {
    if (t.logit != 0) {
      found[t.id] = -static_cast<double>(t.logit);
    }
  }
  return found;
}

DryBreakers breakers_of(const std::vector<std::vector<int32_t>>& sequences) {
  DryBreakers breakers;
  for (const auto& s : sequences) {
    breakers.add(s);
  }
  return breakers;
}

const DryPenalty kDry = {.multiplier = 1, .base = 2, .allowed_length = 2, .last_n = -1};

TEST(SamplerDry, ByHand) {
  // After 1 2 3 came 4, and 1 2 3 stands at the end: length 3 costs 2^(3 - 2).
  EXPECT_THAT(penalties(kDry, {1, 2, 3, 4, 1, 2, 3}), UnorderedElementsAre(Pair(4, 2)));
  // 2 3 alone has length 2: 2^0.
  EXPECT_THAT(penalties(kDry, {2, 3, 4, 1, 2, 3}), UnorderedElementsAre(Pair(4, 1)));
  // 3 alone is free.
  EXPECT_THAT(penalties(kDry, {3, 4, 1, 2, 3}), IsEmpty());
  // Two continuations: 9 after length 2, 4 after length 3; the longest counts for each.
  EXPECT_THAT(penalties(kDry, {2, 3, 9, 1, 2, 3, 4, 2, 3, 4, 1, 2, 3}), UnorderedElementsAre(Pair(9, 1), Pair(4, 2)));
  // A token over and over overlaps itself: n - 1 of them have come before.
  EXPECT_THAT(penalties(kDry, {5, 5, 5, 5, 5}), UnorderedElementsAre(Pair(5, 4)));
}

TEST(SamplerDry, WindowAndNeutralValues) {
  const std::vector<int32_t> history = {1, 2, 3, 4, 1, 2, 3};
  EXPECT_THAT(penalties({1, 2, 2, 7}, history), UnorderedElementsAre(Pair(4, 2)));
  EXPECT_THAT(penalties({1, 2, 2, 6}, history), UnorderedElementsAre(Pair(4, 1)));  // the 1 is out of sight
  EXPECT_THAT(penalties({1, 2, 2, 4}, history), IsEmpty());
  EXPECT_THAT(penalties({1, 2, 2, 1000}, history), UnorderedElementsAre(Pair(4, 2)));
  EXPECT_THAT(penalties({1, 2, 9, -1}, history), IsEmpty());
  EXPECT_THAT(penalties({1, 2, 2, 0}, history), IsEmpty());
  EXPECT_THAT(penalties(kDry, {}), IsEmpty());
  EXPECT_THAT(penalties(kDry, {1}), IsEmpty());
  EXPECT_FALSE((DryPenalty{0, 2, 2, -1}.any()));
  EXPECT_FALSE((DryPenalty{1, 0.5F, 2, -1}.any()));
  EXPECT_FALSE((DryPenalty{1, 2, 2, 0}.any()));
}

TEST(SamplerDry, Breakers) {
  const std::vector<int32_t> history = {7, 1, 2, 3, 4, 7, 1, 2, 3};
  EXPECT_THAT(penalties(kDry, history), UnorderedElementsAre(Pair(4, 4)));
  EXPECT_THAT(penalties(kDry, history, breakers_of({{7}})), UnorderedElementsAre(Pair(4, 2)));
  EXPECT_THAT(penalties(kDry, history, breakers_of({{1}})), UnorderedElementsAre(Pair(4, 1)));
  EXPECT_THAT(penalties(kDry, history, breakers_of({{2}})), IsEmpty());
  EXPECT_THAT(penalties(kDry, history, breakers_of({{3}})), IsEmpty());
  // A breaker is never penalised itself, unless it takes several tokens.
  EXPECT_THAT(penalties(kDry, {1, 2, 7, 1, 2}), UnorderedElementsAre(Pair(7, 1)));
  EXPECT_THAT(penalties(kDry, {1, 2, 7, 1, 2}, breakers_of({{7, 9}, {7}})), IsEmpty());
  EXPECT_THAT(penalties(kDry, {1, 2, 7, 1, 2}, breakers_of({{7, 9}})), UnorderedElementsAre(Pair(7, 1)));
  // A breaker of several tokens ends where its tail ends; one that does not match whole is none.
  EXPECT_THAT(penalties(kDry, history, breakers_of({{7, 1}})), UnorderedElementsAre(Pair(4, 1)));
  EXPECT_THAT(penalties(kDry, history, breakers_of({{7, 2}})), UnorderedElementsAre(Pair(4, 4)));
  EXPECT_THAT(penalties(kDry, history, breakers_of({{3, 9}})), UnorderedElementsAre(Pair(4, 4)));
}

TEST(SamplerDry, HugePenaltiesDropNoCandidate) {
  const std::vector<int32_t> loop(5000, 3);
  const auto found = penalties({1e30F, 1e30F, 0, -1}, loop);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.at(3), static_cast<double>(std::numeric_limits<float>::max()));
}

// Every distance and length tried one by one.
std::map<int32_t, int> naive_lengths(const std::vector<int32_t>& h, size_t limit) {
  std::map<int32_t, int> longest;
  for (size_t k = 1; k < h.size(); ++k) {
    size_t n = 0;
    while (n + k < h.size() && h[h.size() - 1 - n] == h[h.size() - 1 - n - k]) {
      ++n;
    }
    int& length = longest[h[h.size() - k]];
    length = std::max(length, static_cast<int>(std::min(n, limit)));
  }
  return longest;
}

TEST(SamplerDry, AgreesWithANaiveSearch) {
  std::mt19937 random(6);
  for (int round = 0; round < 400; ++round) {
    const uint64_t n_tokens = 2 + random() % 5;
    std::vector<int32_t> history(random() % 120);
    for (size_t i = 0; i < history.size(); ++i) {
      const bool repeats = i >= 12 && random() % 8 != 0;
      history[i] = repeats ? history[i - 3 - random() % 2 * 8] : static_cast<int32_t>(random() % n_tokens);
    }
    const DryBreakers breakers = round % 2 == 0 ? DryBreakers() : breakers_of({{0}, {1, 0}});
    const DryPenalty dry = {1, 1.5F, static_cast<int32_t>(random() % 4), -1};
    std::map<int32_t, double> expected;
    const size_t limit = breakers.longest_repetition(history);
    if (history.size() > static_cast<size_t>(dry.allowed_length)) {
      for (const auto& [id, length] : naive_lengths(history, limit)) {
        if (length >= dry.allowed_length && limit >= static_cast<size_t>(dry.allowed_length) &&
            (id != 0 || round % 2 == 0)) {
          expected[id] = std::pow(1.5, length - dry.allowed_length);
        }
      }
    }
    const auto found = penalties(dry, history, breakers);
    ASSERT_EQ(found.size(), expected.size()) << round;
    for (const auto& [id, penalty] : expected) {
      ASSERT_NEAR(found.at(id), penalty, penalty * 1e-6) << round << " token " << id;
    }
  }
}

// Comparing each distance from the start would take 10^10 steps here.
TEST(SamplerDry, IsLinearInTheHistory) {
  const std::vector<int32_t> loop(100000, 3);
  std::vector<int32_t> period(100000);
  for (size_t i = 0; i < period.size(); ++i) {
    period[i] = static_cast<int32_t>(i % 7);
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(penalties(kDry, loop).size(), 1U);
    EXPECT_EQ(penalties(kDry, period).size(), 1U);
    EXPECT_EQ(penalties(kDry, loop, breakers_of({{3, 4}, {3, 5}})).size(), 1U);
  }
}

// A byte-level vocabulary: the 256 letters, then a few words.
std::unique_ptr<Tokenizer> words() {
  Vocab vocab;
  vocab.model = "llama";
  vocab.tokens = {"<unk>", "a", "b", "\n", "a\n", "\n\n", "b:", "xe", "nd", "n", "d", "x", "e", "end!"};
  vocab.scores.assign(vocab.tokens.size(), 0);
  vocab.token_types.assign(vocab.tokens.size(), TokenType::kNormal);
  vocab.token_types[0] = TokenType::kUnknown;
  vocab.add_space_prefix = false;
  return std::move(Tokenizer::create(std::move(vocab), [](std::string_view) {})).value();
}

TEST(SamplerDry, BreakersAreFoundHoweverTokensSpellThem) {
  const auto tokenizer = words();
  const std::vector<std::string> line_end = {"\n"};
  const auto breakers = DryBreakers::create(*tokenizer, line_end);
  ASSERT_TRUE(breakers.ok());
  for (const int32_t id : {3, 4, 5}) {  // every token with a line end in it
    EXPECT_EQ(breakers->longest_repetition(std::vector<int32_t>{1, id, 2}), 1U) << id;
  }
  EXPECT_EQ(breakers->longest_repetition(std::vector<int32_t>{1, 2, 1}), 3U);
  EXPECT_EQ(breakers->longest_repetition({}), 0U);

  const std::vector<std::string> word = {"end", ""};
  const auto spelled = DryBreakers::create(*tokenizer, word);
  ASSERT_TRUE(spelled.ok());
  EXPECT_EQ(spelled->longest_repetition(std::vector<int32_t>{1, 13, 2, 2}), 2U);     // "end!" contains it
  EXPECT_EQ(spelled->longest_repetition(std::vector<int32_t>{1, 7, 8, 2, 2}), 2U);   // "xe" "nd": begins in a token
  EXPECT_EQ(spelled->longest_repetition(std::vector<int32_t>{1, 12, 8, 2, 2}), 2U);  // "e" "nd"
  EXPECT_EQ(spelled->longest_repetition(std::vector<int32_t>{1, 12, 9, 2, 2}), 5U);  // "e" "n" "b"
  EXPECT_EQ(spelled->longest_repetition(std::vector<int32_t>{2, 12}), 2U);           // not finished

  const std::vector<std::string> many(DryBreakers::kMaxTexts + 1, "x");
  EXPECT_EQ(DryBreakers::create(*tokenizer, many).status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tessera

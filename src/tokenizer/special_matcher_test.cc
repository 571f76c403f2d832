#include "tokenizer/special_matcher.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <iostream>
#include <random>

namespace tessera {
namespace {

// The rule in its plainest form: token after token, longest first, each taking its occurrences from left to right in
// what is still text.
std::vector<Fragment> split_plainly(std::string_view text, std::vector<SpecialToken> tokens,
                                    std::span<const TextRange> ranges, bool strict) {
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const SpecialToken& a, const SpecialToken& b) { return a.text.size() > b.text.size(); });
  const auto allowed = [&](const SpecialToken& token, size_t begin) {
    if (token.scope == MatchScope::kAnywhere || (token.scope == MatchScope::kAnywhereUnlessStrict && !strict)) {
      return true;
    }
    return std::any_of(ranges.begin(), ranges.end(), [&](const TextRange& range) {
      return range.begin <= begin && begin + token.text.size() <= range.end;
    });
  };
  std::vector<Fragment> fragments = {{{0, text.size()}, -1}};
  for (const SpecialToken& token : tokens) {
    std::vector<Fragment> next;
    for (const Fragment& fragment : fragments) {
      size_t done = fragment.range.begin;
      for (size_t i = done; fragment.id < 0 && i + token.text.size() <= fragment.range.end;) {
        if (text.substr(i, token.text.size()) != token.text || !allowed(token, i)) {
          ++i;
          continue;
        }
        next.push_back({{done, i}, -1});
        done = i + token.text.size();
        next.push_back({{i, done}, token.id});
        i = done;
      }
      next.push_back({{done, fragment.range.end}, fragment.id});
    }
    fragments.clear();
    std::copy_if(next.begin(), next.end(), std::back_inserter(fragments),
                 [](const Fragment& f) { return f.range.begin < f.range.end; });
  }
  return fragments;
}

std::string show(std::string_view text, const std::vector<Fragment>& fragments) {
  std::string out;
  for (const Fragment& f : fragments) {
    out += "[" + std::string(text.substr(f.range.begin, f.range.end - f.range.begin)) + "]" + std::to_string(f.id);
  }
  return out;
}

TEST(SpecialMatcher, AgreesWithThePlainRule) {
  const unsigned seed = 20;
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const auto below = [&random](size_t n) { return random() % n; };
  const auto random_text = [&](size_t longest) {
    std::string text;
    for (size_t n = 1 + below(longest); n > 0; --n) {
      text.push_back("aab "[below(4)]);
    }
    return text;
  };
  size_t n_overlapping = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> texts(1 + below(8));
    std::generate(texts.begin(), texts.end(), [&] { return random_text(6); });
    std::sort(texts.begin(), texts.end());
    texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
    std::vector<SpecialToken> tokens;
    for (size_t i = 0; i < texts.size(); ++i) {
      tokens.push_back({texts[i], static_cast<int32_t>(i), static_cast<MatchScope>(below(3))});
    }
    const std::string text = random_text(60);
    std::vector<TextRange> ranges;
    for (size_t at = below(10); at < text.size(); at += 1 + below(10)) {
      const size_t end = std::min(text.size(), at + 1 + below(12));
      ranges.push_back({at, end});
      at = end;
    }
    const bool strict = below(2) == 0;
    const auto fragments = SpecialMatcher(tokens).split(text, ranges, strict);
    ASSERT_EQ(show(text, fragments), show(text, split_plainly(text, tokens, ranges, strict))) << "round " << round;
    n_overlapping += fragments.size() > 3 ? 1 : 0;
  }
  EXPECT_GT(n_overlapping, 1000U);
}

TEST(SpecialMatcher, TakesTheLongestEvenWhereAShorterBeginsFirst) {
  const SpecialMatcher matcher({{"ab", 1}, {"bcd", 2}, {"d", 3}});
  EXPECT_EQ(show("abcde", matcher.split("abcde", {}, false)), "[a]-1[bcd]2[e]-1");
  EXPECT_EQ(show("abd", matcher.split("abd", {}, false)), "[ab]1[d]3");
}

TEST(SpecialMatcher, ControlTokensMustLieInTemplateTextAsAWhole) {
  const SpecialMatcher matcher({{"<x>", 1, MatchScope::kTemplate}, {"\n\n", 2}});
  const std::string text = "<x>\n\n<x>";
  const TextRange first = {0, 4};
  EXPECT_EQ(show(text, matcher.split(text, {}, false)), "[<x>]-1[\n\n]2[<x>]-1");
  EXPECT_EQ(show(text, matcher.split(text, {&first, 1}, false)), "[<x>]1[\n\n]2[<x>]-1");
  const TextRange halves[] = {{0, 2}, {6, 8}};
  EXPECT_EQ(show(text, matcher.split(text, halves, false)), "[<x>]-1[\n\n]2[<x>]-1");
}

TEST(SpecialMatcher, StripsWhiteSpaceAroundTokensThatSaySo) {
  const SpecialMatcher matcher(
      {{"<r>", 1, MatchScope::kAnywhere, false, true}, {"<l>", 2, MatchScope::kAnywhere, true, false}});
  const std::string text = " <r> \n a <l> b";
  EXPECT_EQ(show(text, matcher.split(text, {}, false)), "[ ]-1[<r>]1[a]-1[<l>]2[ b]-1");
}

// Every position of the text begins as many tokens as there are, and each long one almost matches everywhere.
TEST(SpecialMatcher, SelfSimilarTokensStayLinear) {
  std::vector<std::string> texts;
  for (size_t n = 1; n <= 400; ++n) {
    texts.emplace_back(n, 'a');
  }
  texts.push_back(std::string(200'000, 'a') + "b");
  texts.push_back("b" + std::string(200'000, 'a'));
  std::vector<SpecialToken> tokens;
  for (size_t i = 0; i < texts.size(); ++i) {
    tokens.push_back({texts[i], static_cast<int32_t>(i)});
  }
  const SpecialMatcher matcher(tokens);
  const std::string text(1'000'000, 'a');
  const auto fragments = matcher.split(text, {}, false);
  EXPECT_EQ(fragments.size(), 2500U);
  EXPECT_EQ(fragments.back().range.end, text.size());
}

TEST(SpecialMatcher, EmptyAndRepeatedTexts) {
  const SpecialMatcher matcher({{"", 1}, {"x", 2}, {"x", 3}});
  EXPECT_EQ(show("axb", matcher.split("axb", {}, false)), "[a]-1[x]2[b]-1");
  EXPECT_TRUE(matcher.split("", {}, false).empty());
  EXPECT_EQ(SpecialMatcher({}).split("abc", {}, false).size(), 1U);
}

}  // namespace
}  // namespace tessera

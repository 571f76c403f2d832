#include "runtime/stop.h"

#include <gtest/gtest.h>
#include <random>

namespace tessera {
namespace {

TEST(StopReason, NamesAreWhatClientsRead) {
  EXPECT_EQ(stop_reason_name(StopReason::kNone), "none");
  EXPECT_EQ(stop_reason_name(StopReason::kEos), "eos");
  EXPECT_EQ(stop_reason_name(StopReason::kLimit), "limit");
  EXPECT_EQ(stop_reason_name(StopReason::kWord), "word");
  EXPECT_EQ(stop_reason_name(StopReason::kCancelled), "cancelled");
  EXPECT_EQ(stop_reason_name(StopReason::kContextFull), "context_full");
  EXPECT_EQ(stop_reason_name(StopReason::kGrammar), "grammar");
}

TEST(StopWords, WithoutWordsAllPasses) {
  StopWords words({""});
  EXPECT_EQ(words.push("text"), "text");
  EXPECT_EQ(words.flush(), "");
  EXPECT_FALSE(words.found());
}

TEST(StopWords, HoldsBackWhatMayBecomeAWord) {
  StopWords words({"END"});
  EXPECT_EQ(words.push("the E"), "the ");
  EXPECT_EQ(words.push("N"), "");
  EXPECT_EQ(words.push(""), "");
  EXPECT_EQ(words.push("E"), "EN");  // "ENE": the last E may begin again
  EXPECT_EQ(words.push("ND of it"), "");
  EXPECT_TRUE(words.found());
  EXPECT_EQ(words.word(), "END");
  EXPECT_EQ(words.push("more"), "");
  EXPECT_EQ(words.flush(), "");
}

TEST(StopWords, FlushGivesWhatWasHeld) {
  StopWords words({"\n\nUser:"});
  EXPECT_EQ(words.push("yes\n\nUs"), "yes");
  EXPECT_EQ(words.flush(), "\n\nUs");
  EXPECT_EQ(words.push("er:"), "er:");
}

TEST(StopWords, TheWordThatEndsFirstWinsThenTheLongest) {
  StopWords first({"abcd", "bc"});
  EXPECT_EQ(first.push("xabcd"), "xa");
  EXPECT_EQ(first.word(), "bc");
  StopWords longest({"c", "abc", "bc"});
  EXPECT_EQ(longest.push("xabc"), "x");
  EXPECT_EQ(longest.word(), "abc");
}

// Against a plain search, over short texts of two letters, where words overlap themselves and each other.
TEST(StopWords, AgreesWithPlainSearch) {
  std::mt19937 random(7);
  const auto letters = [&](size_t n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) {
      text += random() % 2 == 0 ? 'a' : 'b';
    }
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    const std::vector<std::string> list = {letters(1 + random() % 6), letters(3 + random() % 6)};
    const std::string text = letters(random() % 24);
    size_t end = text.size() + 1;  // of the word that ends first
    std::string word;
    for (const std::string& candidate : list) {
      const size_t at = text.find(candidate);
      const size_t its_end = at + candidate.size();
      if (at != std::string::npos && (its_end < end || (its_end == end && candidate.size() > word.size()))) {
        end = its_end;
        word = candidate;
      }
    }
    StopWords words(list);
    std::string passed;
    for (size_t begin = 0; begin < text.size();) {
      const size_t n = 1 + random() % 4;
      passed += words.push(std::string_view(text).substr(begin, n));
      begin += n;
    }
    passed += words.flush();
    ASSERT_EQ(words.word(), word) << "seed 7, round " << round << ", text " << text;
    ASSERT_EQ(passed, word.empty() ? text : text.substr(0, end - word.size())) << "seed 7, round " << round;
  }
}

}  // namespace
}  // namespace tessera

#include "base/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using testing::HasSubstr;

TEST(Regex, FindsTheFirstMatchFromAPlaceOn) {
  RegexMatcher matcher(Regex::compile("b+", false).value());
  const auto first = matcher.find("abbcbbb");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->begin, 1U);
  EXPECT_EQ(first->end, 3U);
  const auto second = matcher.find("abbcbbb", first->end);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->begin, 4U);
  EXPECT_EQ(second->end, 7U);
  EXPECT_FALSE(matcher.find("abbcbbb", second->end));
  EXPECT_EQ(matcher.failure(), "");
}

TEST(Regex, CharactersAreBytesOrCodePoints) {
  const std::string_view text = "\xc3\xa9x";  // e with an acute accent
  EXPECT_EQ(RegexMatcher(Regex::compile("^.", false).value()).find(text)->end, 1U);
  EXPECT_EQ(RegexMatcher(Regex::compile("^.", true).value()).find(text)->end, 2U);
}

TEST(Regex, BrokenOnesSayWhereAndWhy) {
  const auto broken = Regex::compile("ab(c", false);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(broken.status().message(), HasSubstr("parenthesis at byte 4 of ab(c"));
}

// An expression that would take years ends, and says so; the matcher can go on.
TEST(Regex, RunawaysGiveUp) {
  RegexMatcher matcher(Regex::compile("(a|aa)+$", false).value(), 1000);
  EXPECT_FALSE(matcher.find(std::string(60, 'a') + "b"));
  EXPECT_THAT(matcher.failure(), HasSubstr("limit"));
  EXPECT_TRUE(matcher.find("aaa"));
  EXPECT_EQ(matcher.failure(), "");
}

}  // namespace
}  // namespace tessera

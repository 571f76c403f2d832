#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include "tokenizer/tidy.h"

namespace tessera {
namespace {

TEST(Utf8, ValidSequences) {
  EXPECT_EQ(utf8_valid_bytes(""), 0U);
  EXPECT_EQ(utf8_valid_bytes(std::string_view("\0", 1)), 1U);
  EXPECT_EQ(utf8_valid_bytes("é"), 2U);
  EXPECT_EQ(utf8_valid_bytes("日本"), 3U);
  EXPECT_EQ(utf8_valid_bytes("😀"), 4U);
  EXPECT_EQ(utf8_valid_bytes("\xF0\x9F\x98"), 0U);
  EXPECT_EQ(utf8_valid_bytes("\xC0\x80"), 0U);          // overlong
  EXPECT_EQ(utf8_valid_bytes("\xED\xA0\x80"), 0U);      // surrogate
  EXPECT_EQ(utf8_valid_bytes("\xF4\x90\x80\x80"), 0U);  // beyond U+10FFFF
  EXPECT_EQ(utf8_valid_bytes("\x80"), 0U);
}

TEST(Utf8, UnfinishedEnds) {
  EXPECT_EQ(utf8_unfinished_bytes("abc"), 0U);
  EXPECT_EQ(utf8_unfinished_bytes("aé"), 0U);
  EXPECT_EQ(utf8_unfinished_bytes("a\xC3"), 1U);
  EXPECT_EQ(utf8_unfinished_bytes("a\xE6\x97"), 2U);
  EXPECT_EQ(utf8_unfinished_bytes("a\xF0\x9F\x98"), 3U);
  EXPECT_EQ(utf8_unfinished_bytes("\xF0"), 1U);
  EXPECT_EQ(utf8_unfinished_bytes("\xE0\xA0"), 2U);
  EXPECT_EQ(utf8_unfinished_bytes("\xED\x9F"), 2U);
  EXPECT_EQ(utf8_unfinished_bytes("\xF4\x8F\xBF"), 3U);
  // These can never become characters.
  EXPECT_EQ(utf8_unfinished_bytes("\xE0\x80"), 0U);
  EXPECT_EQ(utf8_unfinished_bytes("\xED\xA0"), 0U);
  EXPECT_EQ(utf8_unfinished_bytes("\xF4\x90"), 0U);
  EXPECT_EQ(utf8_unfinished_bytes("\xC0"), 0U);
  EXPECT_EQ(utf8_unfinished_bytes("\xFF"), 0U);
  EXPECT_EQ(utf8_unfinished_bytes("\x80\x80\x80\x80"), 0U);
}

TEST(Utf8, Replacements) {
  std::vector<size_t> at;
  EXPECT_EQ(with_replacements("a\xFF\xC3\xA9\xF0\x9F", &at), "a\uFFFDé\uFFFD\uFFFD");
  EXPECT_EQ(at, (std::vector<size_t>{1, 6, 9}));
  EXPECT_TRUE(utf8_is_valid("é日"));
  EXPECT_FALSE(utf8_is_valid("é\xFF"));
}

TEST(Utf8, SpaceMarks) {
  std::string out;
  append_marked(" a  b", out);
  EXPECT_EQ(out, "▁a▁▁b");
  EXPECT_EQ(unmark(out), " a  b");
  EXPECT_EQ(unmark("▁"), " ");
  EXPECT_EQ(unmark("\xE2\x96"), "\xE2\x96");
}

TEST(Tidy, SpacesBeforePunctuationAndApostrophes) {
  EXPECT_EQ(tidy_spaces("Hello , world !"), "Hello, world!");
  EXPECT_EQ(tidy_spaces("it 's we 've 'll 'd I 'm"), "it's we've 'll 'd I'm");
  EXPECT_EQ(tidy_spaces("a ' b ' ' c"), "a'b'' c");
  EXPECT_EQ(tidy_spaces("  ?"), " ?");
  EXPECT_EQ(tidy_spaces(""), "");
}

}  // namespace
}  // namespace tessera

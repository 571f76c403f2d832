// GBNF by hand: what it means, how it is refused, and that hostile grammars cost little.

#include "runtime/grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/grammar/grammar_test_util.h"

namespace tessera {
namespace {

using testing::HasSubstr;

std::string repeated(std::string_view text, int n) {
  std::string result;
  for (int i = 0; i < n; ++i) {
    result += text;
  }
  return result;
}

struct Case {
  const char* grammar;
  std::vector<std::string> good;
  std::vector<std::string> bad;
};

const Case kCases[] = {
    {R"(root ::= "abc")", {"abc"}, {"", "ab", "abcd", "abd"}},
    {R"(root ::= "a" "b" | "c"  # a comment)", {"ab", "c"}, {"a", "b", "ac"}},
    {"root ::= x |\n  y\nx ::= \"1\"\ny ::= \"2\" |\n\"3\"", {"1", "2", "3"}, {"", "12"}},
    {"root ::= \"a\"\n  | \"b\"\n", {"a", "b"}, {"ab"}},
    {"root ::= (\n \"a\"\n \"b\" | # why\n \"c\"\n)+", {"ab", "c", "abcab"}, {"", "a"}},
    {R"(root ::= [a-c] [^a-c] [x-] .)", {"adxz", "a.-\n", "cé-é"}, {"aaxz", "adyz", "adx"}},
    {R"(root ::= [\]\\"\n])", {"]", "\\", "\"", "\n"}, {"n", "["}},
    {R"(root ::= "\x41\u00e9\U0001F600\t\r\n\\\"\[\]")", {"Aé😀\t\r\n\\\"[]"}, {"A"}},
    {R"(root ::= "a"* "b"+ "c"?)", {"b", "aabbc"}, {"", "a", "bcc"}},
    {R"(root ::= "ab"{2})", {"abab"}, {"ab", "ababab", "abb"}},
    {R"(root ::= "a"{2,})", {"aa", "aaaaa"}, {"a", ""}},
    {R"(root ::= "a"{1,3} "b"{0,1})", {"a", "aaab"}, {"", "aaaa", "abb"}},
    {R"(root ::= "a"{0} "b")", {"b"}, {"ab"}},
    {R"(root ::= ("a" | "b"){2} )", {"ab", "ba", "aa"}, {"a", "abc"}},
    {"root ::= | \"x\"", {"", "x"}, {"xx"}},
    {"root ::= \"\"", {""}, {"x"}},
    {"root ::= a a\na ::= \"x\"*", {"", "x", "xxx"}, {"y"}},
    {"root ::= (\"\" | a*)* \"!\"\na ::= b?\nb ::= \"x\"+", {"!", "x!", "xxx!"}, {"", "x"}},
    // Recursion: right, in the middle, and both.
    {"root ::= \"a\" root | \"b\"", {"b", "aaab"}, {"a", "ba"}},
    {"root ::= \"(\" root \")\" root | \"\"", {"", "()", "(()())()"}, {"(", ")(", "(()"}},
    {"root ::= \"a\" root \"a\" | \"a\"", {"a", "aaa", "aaaaa"}, {"aa", "aaaa"}},
    {"root ::= s \"!\"\ns ::= \"x\" s s | \"x\"", {"x!", "xxx!", "xxxxx!"}, {"!", "xx!"}},
    // A rule that may be empty, in front of others.
    {"root ::= e \"a\" e root | e\ne ::= \"-\"?", {"", "a", "-a-", "-a--a"}, {"---"}},
};

TEST(Grammar, MeansWhatItSays) {
  for (const Case& c : kCases) {
    for (const std::string& text : c.good) {
      EXPECT_TRUE(accepts(c.grammar, text)) << c.grammar << "\n" << text;
      for (size_t n = 1; n <= text.size(); ++n) {  // also inside a character
        EXPECT_TRUE(accepts_beginning(c.grammar, text.substr(0, n))) << c.grammar << "\n" << text << " " << n;
      }
    }
    for (const std::string& text : c.bad) {
      EXPECT_FALSE(accepts(c.grammar, text)) << c.grammar << "\n" << text;
    }
  }
}

TEST(Grammar, ClassesTakeExactlyTheirCharacters) {
  const std::string grammar =
      R"(root ::= [\x7E-\u0081\u07FE-\u0801\uD7FE-\uE001\uFFFE-\U00010001\U0010FFFE-\U0010FFFF])";
  for (uint32_t code = 1; code <= 0x110000; code += code < 0x1000 || (code & 0xFFF) > 0xFF0 ? 1 : 0xF) {
    const bool is_in = (code >= 0x7E && code <= 0x81) || (code >= 0x7FE && code <= 0x801) ||
                       (code >= 0xD7FE && code <= 0xD7FF) || (code >= 0xE000 && code <= 0xE001) ||
                       (code >= 0xFFFE && code <= 0x10001) || (code >= 0x10FFFE && code <= 0x10FFFF);
    std::string utf8;
    const auto push = [&](uint32_t byte) { utf8 += static_cast<char>(byte); };
    if (code < 0x80) {
      push(code);
    } else {
      const uint32_t n = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
      push((n == 1 ? 0xC0U : n == 2 ? 0xE0U : 0xF0U) | code >> (6 * n));
      for (uint32_t i = n; i > 0; --i) {
        push(0x80U | (code >> (6 * (i - 1)) & 0x3FU));
      }
    }
    static const auto masks = make_masks(grammar, {});
    GrammarMatcher matcher(masks);
    ASSERT_EQ(matcher.accept_bytes(utf8) && matcher.may_end(), is_in) << std::hex << code;
  }
}

TEST(Grammar, NothingButUtf8) {
  const std::string any = "root ::= .*";
  EXPECT_TRUE(accepts(any, "é€😀"));
  for (const char* bytes : {"\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF", "\xC3("}) {
    EXPECT_FALSE(accepts_beginning(any, bytes));
  }
}

TEST(Grammar, RefusalsNameThePlace) {
  const struct {
    const char* grammar;
    const char* place;
    const char* what;
  } kBad[] = {
      {"", "", "no rule 'root'"},
      {"a ::= \"x\"", "", "no rule 'root'"},
      {"root ::= \"é\" x", "line 1, column 14", "no rule 'x'"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1", "defined twice"},
      {"root = \"a\"", "line 1, column 6", "expected ::="},
      {"root ::= \"a", "line 1, column 10", "not closed"},
      {"root ::= \"a\nb\"", "line 1, column 10", "not closed"},
      {"root ::= [a-", "line 1, column 10", "not closed"},
      {"root ::= []", "line 1, column 10", "no character"},
      {"root ::= [z-a]", "line 1, column 11", "ends before it begins"},
      {"root ::= (\"a\"", "line 1, column 10", "not closed"},
      {"root ::= \"a\")", "line 1, column 13", "closes no group"},
      {"root ::= *", "line 1, column 10", "repeats nothing"},
      {"root ::= (| +)", "line 1, column 13", "repeats nothing"},
      {"root ::= \"a\"{2", "line 1, column 15", "expected }"},
      {"root ::= \"a\"{,3}", "line 1, column 14", "whole number"},
      {"root ::= \"a\"{3,2}", "line 1, column 13", "swap"},
      {"root ::= \"a\"{100001}", "line 1, column 14", "repetitions"},
      {"root ::= \"a\"{99999999999999999999}", "line 1, column 14", "repetitions"},
      {"root ::= \"\\d\"", "line 1, column 11", "unknown escape"},
      {"root ::= \"\\x4g\"", "line 1, column 11", "hexadecimal"},
      {"root ::= \"\\uD800\"", "line 1, column 11", "no character"},
      {"root ::= \"\\", "line 1, column 11", "unknown escape"},
      {"root ::= \"\xff\"", "line 1, column 11", "UTF-8"},
      {"root ::= %", "line 1, column 10", "found '%'"},
      {"root ::= <think>", "line 1, column 10", "no token"},
      {"root ::= <[x]>", "line 1, column 10", "token id"},
      {"root ::= <[1]", "line 1, column 10", "not closed"},
      {"::= \"a\"", "line 1, column 1", "expected the name"},
  };
  for (const auto& bad : kBad) {
    EXPECT_THAT(refusal(bad.grammar), testing::AllOf(HasSubstr(bad.place), HasSubstr(bad.what))) << bad.grammar;
  }
}

TEST(Grammar, RulesThatBeginWithThemselvesAreRefused) {
  EXPECT_THAT(refusal("root ::= root \"a\" | \"b\""), HasSubstr("'root' begins with itself"));
  EXPECT_THAT(refusal("root ::= a\na ::= b \"x\"\nb ::= \"y\" | c\nc ::= a"), HasSubstr("a -> b -> c -> a"));
  EXPECT_THAT(refusal("root ::= e root \"a\" | \"b\"\ne ::= \"x\"?"), HasSubstr("'root' begins with itself"));
  EXPECT_THAT(refusal("root ::= (e e)* f root\ne ::= f\nf ::= \"\" | \"q\""), HasSubstr("begins with itself"));
  EXPECT_EQ(refusal("root ::= e root | \"b\"\ne ::= \"x\"+"), "");
  EXPECT_EQ(refusal("root ::= \"a\" | root{0} \"b\""), "");
}

TEST(Grammar, HostileOnesAreRefusedOrCheap) {
  constexpr int kMany = 60000;
  EXPECT_THAT(refusal("root ::= " + repeated("(", kMany) + "\"a\"" + repeated(")", kMany)), HasSubstr("deep"));
  EXPECT_THAT(refusal("root ::= \"a\"" + repeated("*", kMany)), HasSubstr("operators"));
  EXPECT_THAT(refusal("root ::= ((((\"a\"{1000}){1000}){1000}){1000})"), HasSubstr("states"));
  EXPECT_THAT(refusal("root ::= ((((\"\"{100000}){100000}){100000}){100000})"), HasSubstr("states"));
  EXPECT_THAT(refusal(std::string(kMaxGrammarBytes + 1, ' ')), HasSubstr("bytes"));
  EXPECT_EQ(refusal("root ::= " + repeated("(", kMaxGrammarDepth) + "\"a\"" + repeated(")", kMaxGrammarDepth)), "");
  // A long chain of rules, each of which begins with the next, and may be empty.
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < kMany; ++i) {
    chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " \"x\" | \"\"\n";
  }
  EXPECT_EQ(refusal(chain + "r" + std::to_string(kMany) + " ::= \"a\""), "");
  EXPECT_THAT(refusal(chain + "r" + std::to_string(kMany) + " ::= r0"), HasSubstr("begins with itself"));
}

TEST(Grammar, AmbiguityIsPolynomial) {
  // Every text has exponentially many readings.
  const std::string grammar = "root ::= s\ns ::= \"x\" s s | \"x\" s | \"x\" | s2\ns2 ::= \"x\" s \"\" s2 | \"y\"";
  const auto masks = make_masks(grammar, {"x", "y", "xx", "xyx"});
  GrammarMatcher matcher(masks);
  EXPECT_TRUE(matcher.accept_bytes(std::string(300, 'x')));
  EXPECT_TRUE(matcher.may_end());
  EXPECT_TRUE(matcher.mask().ok());
}

TEST(Grammar, DeepTextsNeedNoStack) {
  const auto masks = make_masks("root ::= \"[\" root \"]\" | \"x\"", {"[", "]", "x"});
  GrammarMatcher matcher(masks);
  constexpr int kDeep = 50000;
  EXPECT_TRUE(matcher.accept_bytes(std::string(kDeep, '[') + "x" + std::string(kDeep - 1, ']')));
  EXPECT_FALSE(matcher.may_end());
  EXPECT_TRUE(matcher.accept_bytes("]"));
  EXPECT_TRUE(matcher.may_end());
  EXPECT_FALSE(matcher.accept_bytes("]"));
}

}  // namespace
}  // namespace tessera

// Masks against the plain definition: a token is allowed where the text may go on with it.

#include "runtime/grammar/matcher.h"

#include <gtest/gtest.h>
#include <random>

#include "runtime/grammar/grammar_test_util.h"
#include "runtime/grammar/json_schema.h"

namespace tessera {
namespace {

using Ids = std::vector<int32_t>;

Ids allowed(GrammarMatcher& matcher, int32_t n_vocab) {
  const auto mask = matcher.mask();
  EXPECT_TRUE(mask.ok());
  Ids ids;
  for (int32_t id = 0; id < n_vocab; ++id) {
    if ((*mask)->allows(id)) {
      ids.push_back(id);
    }
  }
  EXPECT_EQ((*mask)->n_allowed, static_cast<int32_t>(ids.size()));
  return ids;
}

// Pieces of one to three bytes of what JSON and the grammars below are made of, halves of characters among them.
std::vector<std::string> small_vocabulary() {
  std::vector<std::string> pieces = {"",         "{",        "}",    "[",    "]",    "\"",   ":", ",",        " ",
                                     "\n",       "\\",       "a",    "b",    "n",    "u",    "0", "1",        "-",
                                     ".",        "e",        "true", "null", "\xC3", "\xA9", "é", "\xE2\x82", "\xAC",
                                     "\xF0\x9F", "\x98\x80", "\xFF", "(",    ")",    "x",    "y", "+"};
  const size_t n_single = pieces.size();
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::string piece;
    for (auto n = 2 + random() % 3; n > 0; --n) {
      piece += pieces[random() % n_single];
    }
    pieces.push_back(piece);
  }
  for (const int n : {15, 16, 17, 18, 19, 20, 33}) {  // around the border between short and long
    pieces.emplace_back(std::string(static_cast<size_t>(n), 'a'));
    pieces.emplace_back(std::string(static_cast<size_t>(n), 'a') + "\"");
  }
  pieces.emplace_back("\"a\":");  // twice
  pieces.emplace_back("\"a\":");
  return pieces;
}

void walk_at_random(const std::string& grammar, uint32_t seed, int n_steps) {
  std::vector<std::string> pieces = small_vocabulary();
  const auto end_id = static_cast<int32_t>(pieces.size());
  pieces.emplace_back("");
  const auto n_vocab = static_cast<int32_t>(pieces.size());
  const auto masks = make_masks(grammar, pieces, {end_id});
  ASSERT_NE(masks, nullptr);
  GrammarMatcher matcher(masks);
  std::mt19937 random(seed);
  std::string text;
  for (int step = 0; step < n_steps; ++step) {
    const Ids found = allowed(matcher, n_vocab);
    Ids expected;
    for (int32_t id = 0; id < n_vocab; ++id) {
      GrammarMatcher copy = matcher;
      const std::string& piece = pieces[static_cast<size_t>(id)];
      if (id == end_id ? matcher.may_end() : !piece.empty() && copy.accept_bytes(piece)) {
        expected.push_back(id);
      }
    }
    ASSERT_EQ(found, expected) << grammar << "\nafter " << text;
    if (found.empty() || found == Ids{end_id}) {
      break;
    }
    const int32_t id = found[random() % found.size()];
    EXPECT_TRUE(matcher.accept(id));
    text += pieces[static_cast<size_t>(id)];
    EXPECT_FALSE(matcher.is_dead());
  }
}

TEST(GrammarMatcher, MasksAreWhatTheDefinitionSays) {
  const std::string grammars[] = {
      json_grammar(false),
      json_grammar(true),
      "root ::= \"(\" root \")\" root | \"\"",
      "root ::= \"x\" root \"x\" | \"y\" | (\"x\" \"y\"){2,5} root",
      "root ::= e \"a\"{1,7} root | e\ne ::= [é€😀-]? f*\nf ::= \"+\" (\"b\" | e2 \"b\")\ne2 ::= \"x\"*",
      "root ::= [ab]{0,60} \"\\\"\" (\"x\" [a]{0,25} \"y\" | root)",
      "root ::= \"\\\"\" (c{0,45} | (\"1\" [ab]{0,30}){0,40}) \"\\\"\" root?\nc ::= [^\"\\\\] | \"\\\\\" [nu\"]",
      "root ::= [^a\"]* \"\\\"\" .{0,3} \"\\\"\" root | \"a\"",
      "root ::= w (\", \"? w)*\nw ::= \"[\" item* \"]\"\nitem ::= [ab01]+ | w | \"\\\"\" c* \"\\\"\"\nc ::= [^\"\\\\] "
      "| "
      "\"\\\\\" [nu\"]",
  };
  uint32_t seed = 1;
  for (const std::string& grammar : grammars) {
    for (int i = 0; i < 4; ++i) {
      walk_at_random(grammar, seed++, 25);
    }
  }
}

TEST(GrammarMatcher, EndTokensOnlyWhereTheTextMayEnd) {
  const auto masks = make_masks("root ::= \"ab\"+", {"a", "b", "ab", "", "c"}, {3});
  GrammarMatcher matcher(masks);
  EXPECT_EQ(allowed(matcher, 5), (Ids{0, 2}));
  EXPECT_TRUE(matcher.accept(0));
  EXPECT_EQ(allowed(matcher, 5), Ids{1});
  EXPECT_FALSE(GrammarMatcher(matcher).accept(3));
  EXPECT_TRUE(matcher.accept(1));
  EXPECT_EQ(allowed(matcher, 5), (Ids{0, 2, 3}));
  EXPECT_TRUE(matcher.accept(3));
  EXPECT_TRUE(matcher.may_end());
}

TEST(GrammarMatcher, NothingFollowsACompleteText) {
  const auto masks = make_masks("root ::= \"a\"", {"a", "b"});
  GrammarMatcher matcher(masks);
  EXPECT_TRUE(matcher.accept(0));
  EXPECT_TRUE(matcher.may_end());
  EXPECT_EQ(allowed(matcher, 2), Ids{});
  EXPECT_FALSE(matcher.accept(0));
  EXPECT_TRUE(matcher.is_dead());
  EXPECT_FALSE(matcher.may_end());
  EXPECT_EQ(allowed(matcher, 2), Ids{});
}

TEST(GrammarMatcher, NamedTokens) {
  const TokenNames names = [](std::string_view name) -> std::optional<int32_t> {
    return name == "<call>" ? std::optional<int32_t>(2) : std::nullopt;
  };
  // Token 2 stands for no text; 4 is text that looks like it.
  const std::vector<std::string> pieces = {"a", "b", "", "", "<call>"};
  const auto masks = make_masks("root ::= \"a\" <call> !<[1]> | \"a\" \"<call>\" <[0]>", pieces, {3}, names);
  GrammarMatcher matcher(masks);
  EXPECT_TRUE(matcher.accept(0));
  EXPECT_EQ(allowed(matcher, 5), (Ids{2, 4}));
  GrammarMatcher by_text = matcher;
  EXPECT_TRUE(matcher.accept(2));
  EXPECT_EQ(allowed(matcher, 5), (Ids{0, 2, 3, 4}));
  EXPECT_FALSE(GrammarMatcher(matcher).accept(1));
  EXPECT_TRUE(matcher.accept(4));
  EXPECT_TRUE(matcher.may_end());
  EXPECT_TRUE(by_text.accept(4));
  EXPECT_EQ(allowed(by_text, 5), Ids{0});
  EXPECT_FALSE(by_text.accept(99));
}

TEST(GrammarMatcher, CopiesAreIndependent) {
  const auto masks = make_masks("root ::= \"a\" (\"b\" | \"c\") \"d\"", {"a", "b", "c", "d"});
  GrammarMatcher first(masks);
  EXPECT_TRUE(first.accept(0));
  GrammarMatcher second = first;
  const GrammarMatcher start(masks);
  EXPECT_TRUE(first.accept(1));
  EXPECT_EQ(allowed(second, 4), (Ids{1, 2}));
  second = start;
  EXPECT_EQ(allowed(second, 4), Ids{0});
  first = std::move(second);
  EXPECT_EQ(allowed(first, 4), Ids{0});
}

// Long enough that the memory of configurations and masks is begun anew several times.
TEST(GrammarMatcher, ForgettingChangesNothing) {
  std::vector<std::string> pieces = {"[", "]", "x", ",", "[[", "]]", "],", "x,"};
  pieces.resize(60000);  // masks of 7.5 KB
  const auto masks = make_masks("root ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= root | \"x\"", pieces);
  GrammarMatcher matcher(masks);
  const GrammarMatcher early = [&] {
    GrammarMatcher m(masks);
    m.accept(0);
    return m;
  }();
  const Ids at_first = allowed(*std::make_unique<GrammarMatcher>(early), 8);
  int depth = 0;
  std::mt19937 random(7);
  for (int i = 0; i < 12000; ++i) {  // mostly down: every depth has masks of its own
    const auto mask = matcher.mask();
    ASSERT_TRUE(mask.ok());
    Ids ids;
    for (const int32_t id : {0, 0, 0, 2, 3, 3, 3, 1}) {
      if ((*mask)->allows(id) && (id != 1 || depth > 3)) {
        ids.push_back(id);
      }
    }
    ASSERT_FALSE(ids.empty()) << i;
    const int32_t id = ids[random() % ids.size()];
    ASSERT_TRUE(matcher.accept(id));
    depth += id == 0 ? 1 : id == 1 ? -1 : 0;
  }
  EXPECT_GT(depth, 2500);
  EXPECT_EQ(allowed(*std::make_unique<GrammarMatcher>(early), 8), at_first);
}

// So deep that what is in use alone fills the memory: frames are moved while they are open.
TEST(GrammarMatcher, OpenFramesSurviveForgetting) {
  const auto masks = make_masks("root ::= \"[\" root? \"]\" | \"(\" root? \")\"", {"[", "]", "(", ")"});
  GrammarMatcher matcher(masks);
  std::string opened;
  std::string closed;
  std::mt19937 random(5);
  for (int i = 0; i < 30; ++i) {
    std::string some;
    for (int k = 0; k < 8000; ++k) {
      some += random() % 2 == 0 ? '[' : '(';
    }
    ASSERT_TRUE(matcher.accept_bytes(some)) << i;
    opened += some;
  }
  for (size_t i = opened.size(); i > 0; --i) {
    closed += opened[i - 1] == '[' ? ']' : ')';
  }
  GrammarMatcher wrong = matcher;
  EXPECT_FALSE(wrong.accept_bytes(closed[0] == ']' ? ")" : "]"));
  for (size_t i = 0; i < closed.size(); i += 8000) {
    EXPECT_FALSE(matcher.may_end());
    ASSERT_TRUE(matcher.accept_bytes(std::string_view(closed).substr(i, 8000))) << i;
  }
  EXPECT_TRUE(matcher.may_end());
}

TEST(TokenTrie, HoldsEveryPieceOnce) {
  const std::vector<std::string> pieces = {"b", "abc", "ab", "", "ab", "a\xFFz", "b"};
  const TokenTrie trie(pieces, std::vector<int32_t>{3});
  std::vector<std::string> found(pieces.size());
  std::string path;
  for (size_t i = 0; i < trie.nodes(TokenTrie::kShort).size(); ++i) {
    const TokenTrie::Node& node = trie.nodes(TokenTrie::kShort)[i];
    path.resize(node.depth - size_t{1});
    path += static_cast<char>(node.byte);
    EXPECT_GT(node.end, static_cast<int32_t>(i));
    for (int32_t id = node.token; id >= 0; id = trie.next_same()[static_cast<size_t>(id)]) {
      EXPECT_EQ(found[static_cast<size_t>(id)], "");
      found[static_cast<size_t>(id)] = path;
    }
  }
  EXPECT_EQ(found, pieces);
  EXPECT_TRUE(trie.nodes(TokenTrie::kLong).empty());
  EXPECT_EQ(trie.max_depth(), 3U);
  EXPECT_TRUE(trie.is_end(3));
  EXPECT_FALSE(trie.is_end(0));
  EXPECT_EQ(trie.bytes(1), "abc");
}

}  // namespace
}  // namespace tessera

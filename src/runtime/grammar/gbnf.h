#pragma once
// GBNF, the notation of grammars that llama.cpp made known, as a syntax tree. Private to runtime/grammar.
//
// A grammar is a list of rules `name ::= alternatives`; `root` is where it begins. An alternative is a row of literals
// "text", classes [a-z] [^"] and ., names of rules, groups ( ) and tokens <[7]> <name> !<name>, each with *, +, ?, {n},
// {n,} or {n,m} behind it if wanted; # begins a comment. A rule ends at the end of its line, unless a group is open or
// the line ends with, or the next begins with, |. Escapes: \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH.
//
// The tree is one flat list: nothing that walks or frees it goes deeper than kMaxGrammarDepth.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

inline constexpr size_t kMaxGrammarBytes = 4U << 20;
inline constexpr int kMaxGrammarDepth = 200;         // of groups in each other
inline constexpr uint32_t kMaxRepetitions = 100000;  // in {n,m}
inline constexpr size_t kMaxGrammarNodes = 500000;
inline constexpr int kMaxTreeDepth = 800;  // of parts, which operators such as ** make as well

/// Code points from first to last.
struct CodeRange {
  uint32_t first = 0;
  uint32_t last = 0;
  friend bool operator==(const CodeRange&, const CodeRange&) = default;
};

/// Sorted, disjoint, not adjacent.
using CodeRanges = std::vector<CodeRange>;

/// The same set in that form.
CodeRanges normalized(CodeRanges ranges);
/// All code points but these (and but surrogates). REQUIRES: normalized.
CodeRanges inverted(const CodeRanges& ranges);

inline constexpr uint32_t kUnlimited = 0xFFFFFFFF;

struct GbnfNode {
  enum class Kind : uint8_t { kLiteral, kClass, kToken, kRule, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kSequence;
  bool negated = false;                // kToken: any token but `index`
  int32_t height = 0;                  // of the tree below
  int32_t index = 0;                   // kRule: of the rule; kToken: id
  uint32_t min = 0, max = 0;           // kRepeat; max may be kUnlimited
  std::string bytes = {};              // kLiteral
  CodeRanges ranges = {};              // kClass; normalized
  std::vector<int32_t> children = {};  // kSequence, kChoice: any number; kRepeat: one
};

struct GbnfRule {
  std::string name;
  int32_t node = 0;
};

struct GbnfTree {
  std::vector<GbnfNode> nodes;
  std::vector<GbnfRule> rules;
  int32_t root = 0;  // rule
};

/// The id of the token with this text ("<think>"), if there is one.
using TokenNames = std::function<std::optional<int32_t>(std::string_view text)>;

/// Reads a grammar. Work is linear in the text. token_names may be empty: names of tokens are errors then.
/// Errors: kInvalidArgument with line and column, what was expected there and what to do.
Result<GbnfTree> parse_gbnf(std::string_view text, const TokenNames& token_names);

}  // namespace tessera

#pragma once
// Finds the tokens that are matched verbatim in a text (control, unknown and user-defined ones) and cuts the text
// there.
//
// The rule is the reference's: of all occurrences the longest is taken first, among equally long ones the token with
// the lower id, among those of one token the leftmost; then both sides are treated alike. One pass of an Aho-Corasick
// automaton over the reversed text names the longest token at every position; the choice between overlapping ones looks
// no further than they overlap. Work is linear in the text. Immutable once built, safe for any thread.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera {

/// Where a token is matched.
enum class MatchScope {
  kAnywhere,
  kAnywhereUnlessStrict,
  kTemplate,  // only in ranges that the caller names
};

/// One token to be matched.
struct SpecialToken {
  std::string_view text;  // must outlive the matcher
  int32_t id = 0;
  MatchScope scope = MatchScope::kAnywhere;
  bool strip_left = false;   // swallows white space before it
  bool strip_right = false;  // swallows white space after it
};

/// A part of a text, in bytes.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

/// A run of ordinary text, or (id >= 0) a token.
struct Fragment {
  TextRange range;
  int32_t id = -1;
};

class SpecialMatcher {
 public:
  /// tokens in ascending order of id; empty texts are ignored, of equal texts the first counts.
  explicit SpecialMatcher(std::vector<SpecialToken> tokens);

  /// Cuts text into fragments, in order, none of them empty. template_ranges (ascending, disjoint): where tokens of
  /// kTemplate may lie, and if strict those of kAnywhereUnlessStrict too.
  [[nodiscard]] std::vector<Fragment> split(std::string_view text, std::span<const TextRange> template_ranges,
                                            bool strict) const;

 private:
  // A node stands for a reversed beginning of tokens' texts, that is for a suffix of some token.
  struct Node {
    int32_t fallback = 0;  // node of the longest proper suffix (in reading direction: prefix) that is a node
    int32_t token = -1;    // index into tokens_ of the longest token that this node's text starts with
    int32_t shorter = -1;  // node with the next shorter such token, or -1
  };
  struct Candidate {
    size_t begin;  // where in the text tokens start
    int32_t node;  // whose chain of `shorter` lists them, longest first
  };
  class Splitter;

  [[nodiscard]] int32_t child(int32_t node, uint8_t byte) const;
  void add(int32_t token, std::vector<std::vector<std::pair<uint8_t, int32_t>>>& children);
  void link(const std::vector<std::vector<std::pair<uint8_t, int32_t>>>& children);
  [[nodiscard]] std::vector<Candidate> candidates(std::string_view text) const;

  std::vector<SpecialToken> tokens_;
  std::vector<Node> nodes_;
  int32_t root_children_[256];
  std::unordered_map<uint64_t, int32_t> children_;  // node << 8 | byte → node; without the root's
};

}  // namespace tessera

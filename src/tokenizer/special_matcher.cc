#include "tokenizer/special_matcher.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

bool is_ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

SpecialMatcher::SpecialMatcher(std::vector<SpecialToken> tokens) : tokens_(std::move(tokens)) {
  nodes_.emplace_back();
  std::vector<std::vector<std::pair<uint8_t, int32_t>>> children(1);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (!tokens_[i].text.empty()) {
      add(static_cast<int32_t>(i), children);
    }
  }
  link(children);
}

void SpecialMatcher::add(int32_t token, std::vector<std::vector<std::pair<uint8_t, int32_t>>>& children) {
  int32_t node = 0;
  const std::string_view text = tokens_[static_cast<size_t>(token)].text;
  for (auto c = text.rbegin(); c != text.rend(); ++c) {
    auto& edges = children[static_cast<size_t>(node)];
    const auto byte = static_cast<uint8_t>(*c);
    auto edge = std::find_if(edges.begin(), edges.end(), [byte](const auto& e) { return e.first == byte; });
    if (edge != edges.end()) {
      node = edge->second;
      continue;
    }
    const auto fresh = static_cast<int32_t>(nodes_.size());
    edges.emplace_back(byte, fresh);
    nodes_.emplace_back();
    children.emplace_back();
    node = fresh;
  }
  int32_t& owner = nodes_[static_cast<size_t>(node)].token;
  owner = owner < 0 ? token : owner;
}

// Breadth first, so that a node's fallback, being shorter, is complete before the node itself.
void SpecialMatcher::link(const std::vector<std::vector<std::pair<uint8_t, int32_t>>>& children) {
  std::fill(std::begin(root_children_), std::end(root_children_), 0);
  for (const auto& [byte, node] : children[0]) {
    root_children_[byte] = node;
  }
  for (size_t parent = 1; parent < children.size(); ++parent) {
    for (const auto& [byte, node] : children[parent]) {
      children_.emplace(static_cast<uint64_t>(parent) << 8 | byte, node);
    }
  }
  std::vector<int32_t> queue = {0};
  for (size_t i = 0; i < queue.size(); ++i) {
    const int32_t parent = queue[i];
    for (const auto& [byte, id] : children[static_cast<size_t>(parent)]) {
      queue.push_back(id);
      Node& node = nodes_[static_cast<size_t>(id)];
      int32_t fallback = 0;
      if (parent != 0) {
        int32_t from = nodes_[static_cast<size_t>(parent)].fallback;
        while (from != 0 && child(from, byte) == 0) {
          from = nodes_[static_cast<size_t>(from)].fallback;
        }
        fallback = child(from, byte);
      }
      node.fallback = fallback;
      const Node& suffix = nodes_[static_cast<size_t>(fallback)];
      if (node.token < 0) {
        node.token = suffix.token;
        node.shorter = suffix.shorter;
      } else if (suffix.token >= 0) {
        node.shorter = fallback;
      }
    }
  }
}

int32_t SpecialMatcher::child(int32_t node, uint8_t byte) const {
  if (node == 0) {
    return root_children_[byte];
  }
  const auto found = children_.find(static_cast<uint64_t>(static_cast<uint32_t>(node)) << 8 | byte);
  return found == children_.end() ? 0 : found->second;
}

std::vector<SpecialMatcher::Candidate> SpecialMatcher::candidates(std::string_view text) const {
  std::vector<Candidate> found;
  int32_t node = 0;
  for (size_t i = text.size(); i-- > 0;) {
    const auto byte = static_cast<uint8_t>(text[i]);
    int32_t next = child(node, byte);
    while (next == 0 && node != 0) {
      node = nodes_[static_cast<size_t>(node)].fallback;
      next = child(node, byte);
    }
    node = next;
    if (nodes_[static_cast<size_t>(node)].token >= 0) {
      found.push_back({i, node});
    }
  }
  std::reverse(found.begin(), found.end());
  return found;
}

// The choice among the candidates of one text.
class SpecialMatcher::Splitter {
 public:
  Splitter(const SpecialMatcher& matcher, std::string_view text, std::span<const TextRange> template_ranges,
           bool strict)
      : matcher_(matcher),
        text_(text),
        template_ranges_(template_ranges),
        strict_(strict),
        candidates_(matcher.candidates(text)) {}

  std::vector<Fragment> run() {
    // Last in, first out: what lies further right waits below. Left sides nest only as deep as tokens of growing
    // length overlap, so an explicit stack is a matter of principle.
    std::vector<Fragment> waiting = {{{0, text_.size()}, -1}};
    while (!waiting.empty()) {
      const Fragment fragment = waiting.back();
      waiting.pop_back();
      if (fragment.id >= 0) {
        fragments_.push_back(fragment);
      } else {
        split_range(fragment.range, waiting);
      }
    }
    return std::move(fragments_);
  }

 private:
  // Takes the first token that must be taken in range and leaves what is left of it, itself, and the rest in waiting.
  void split_range(TextRange range, std::vector<Fragment>& waiting) {
    size_t first = first_candidate(range.begin);
    const SpecialToken* token = nullptr;
    while (first < candidates_.size() && candidates_[first].begin < range.end) {
      token = longest(candidates_[first], range.end);
      if (token != nullptr) {
        break;
      }
      ++first;
    }
    if (token == nullptr) {
      emit_text(range);
      return;
    }
    size_t chosen = first;
    for (size_t i = first + 1; i < candidates_.size(); ++i) {
      if (candidates_[i].begin >= std::min(range.end, candidates_[chosen].begin + token->text.size())) {
        break;
      }
      const SpecialToken* other = longest(candidates_[i], range.end);
      if (other != nullptr && precedes(*other, *token)) {
        chosen = i;
        token = other;
      }
    }
    const TextRange taken = {candidates_[chosen].begin, candidates_[chosen].begin + token->text.size()};
    TextRange left = {range.begin, taken.begin};
    TextRange right = {taken.end, range.end};
    while (token->strip_left && left.end > left.begin && is_ascii_space(text_[left.end - 1])) {
      --left.end;
    }
    while (token->strip_right && right.begin < right.end && is_ascii_space(text_[right.begin])) {
      ++right.begin;
    }
    waiting.push_back({right, -1});
    waiting.push_back({taken, token->id});
    if (chosen == first) {
      emit_text(left);
    } else {
      waiting.push_back({left, -1});
    }
  }

  static bool precedes(const SpecialToken& a, const SpecialToken& b) {
    return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.id < b.id;
  }

  [[nodiscard]] size_t first_candidate(size_t begin) const {
    const auto at = std::lower_bound(candidates_.begin(), candidates_.end(), begin,
                                     [](const Candidate& c, size_t position) { return c.begin < position; });
    return static_cast<size_t>(at - candidates_.begin());
  }

  // The longest token at candidate that ends by limit and is allowed there.
  [[nodiscard]] const SpecialToken* longest(const Candidate& candidate, size_t limit) const {
    const size_t template_end = end_of_template(candidate.begin);
    for (int32_t node = candidate.node; node >= 0;) {
      const Node& n = matcher_.nodes_[static_cast<size_t>(node)];
      const SpecialToken& token = matcher_.tokens_[static_cast<size_t>(n.token)];
      const bool restricted =
          token.scope == MatchScope::kTemplate || (strict_ && token.scope == MatchScope::kAnywhereUnlessStrict);
      if (candidate.begin + token.text.size() <= (restricted ? std::min(limit, template_end) : limit)) {
        return &token;
      }
      node = n.shorter;
    }
    return nullptr;
  }

  // Where the template range around position ends; 0 outside of such ranges.
  [[nodiscard]] size_t end_of_template(size_t position) const {
    const auto after = std::upper_bound(template_ranges_.begin(), template_ranges_.end(), position,
                                        [](size_t p, const TextRange& r) { return p < r.begin; });
    if (after == template_ranges_.begin() || (after - 1)->end <= position) {
      return 0;
    }
    return (after - 1)->end;
  }

  void emit_text(TextRange range) {
    if (range.begin < range.end) {
      fragments_.push_back({range, -1});
    }
  }

  const SpecialMatcher& matcher_;
  std::string_view text_;
  std::span<const TextRange> template_ranges_;
  bool strict_;
  std::vector<Candidate> candidates_;  // ascending
  std::vector<Fragment> fragments_;
};

std::vector<Fragment> SpecialMatcher::split(std::string_view text, std::span<const TextRange> template_ranges,
                                            bool strict) const {
  return Splitter(*this, text, template_ranges, strict).run();
}

}  // namespace tessera

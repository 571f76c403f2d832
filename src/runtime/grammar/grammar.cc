#include "runtime/grammar/grammar.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <span>

#include "runtime/grammar/utf8_ranges.h"

namespace tessera {
namespace {

using Kind = GbnfNode::Kind;
using StateKind = Grammar::State::Kind;

// Rules are copied to where they are used up to this size: enough for a character of a JSON string with its escapes.
constexpr size_t kMaxInlineStates = 60;
// And while all copies of one together have no more than these states.
constexpr size_t kMaxInlineTotal = 100000;
// More copies than these of a short rule become calls of one.
constexpr uint64_t kMaxInlineCopies = 300;
// Copies of parts, those without states included.
constexpr size_t kMaxCompileSteps = 4U << 20;

}  // namespace

// Builds backwards: every part is compiled with the state that follows it.
class GrammarCompiler {
 public:
  explicit GrammarCompiler(GbnfTree tree) : tree_(std::move(tree)), grammar_(new Grammar) {}

  Result<std::shared_ptr<const Grammar>> compile();

 private:
  using State = Grammar::State;

  void find_empty();
  Status find_ranks();
  std::vector<int32_t> first_rules(int32_t rule) const;
  void find_short_rules();
  void set_byte_classes();

  int32_t compile(int32_t node, int32_t next);
  int32_t compile_literal(const std::string& bytes, int32_t next);
  int32_t compile_class(const CodeRanges& ranges, int32_t next);
  int32_t compile_rule(int32_t rule, int32_t next);
  int32_t compile_repeat(const GbnfNode& repeat, int32_t next);
  int32_t compile_optional_copies(int32_t child, uint32_t n, int32_t next);
  int32_t add_state(State state);
  int32_t add_edges(const std::vector<Grammar::Edge>& edges);
  int32_t add_choice(std::span<const int32_t> targets);

  GbnfTree tree_;
  std::shared_ptr<Grammar> grammar_;
  std::vector<bool> node_empty_;  // by node: may read nothing
  std::vector<bool> rule_empty_;  // by rule
  std::vector<bool> short_;       // by rule: is copied
  std::vector<int32_t> jumps_;    // choices whose one target is a rule until all rules have a start
  size_t n_steps_ = 0;
  uint64_t n_copies_ = 1;  // that the repetitions around the present part ask for
  bool too_large_ = false;
};

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile() {
  find_empty();
  grammar_->root_ = tree_.root;
  for (size_t i = 0; i < tree_.rules.size(); ++i) {
    grammar_->rules_.push_back({.name = tree_.rules[i].name, .may_be_empty = rule_empty_[i]});
  }
  TRY(find_ranks());
  find_short_rules();
  add_state({});
  for (size_t i = 0; i < tree_.rules.size() && !too_large_; ++i) {
    grammar_->rules_[i].start = compile(tree_.rules[i].node, Grammar::kEndState);
  }
  if (too_large_) {
    return Status(
        ErrorCode::kInvalidArgument,
        fmt::format("the grammar needs more than {} states; ask for fewer repetitions ({{n,}} costs less than "
                    "{{n,m}}) or fewer rules",
                    kMaxGrammarStates));
  }
  for (const int32_t jump : jumps_) {
    int32_t& target = grammar_->targets_[static_cast<size_t>(grammar_->states_[static_cast<size_t>(jump)].begin)];
    target = grammar_->rules_[static_cast<size_t>(target)].start;
  }
  set_byte_classes();
  return std::shared_ptr<const Grammar>(grammar_);
}

// What may read nothing, from the leaves to the roots: each part tells its parent once, and a rule those who use it.
void GrammarCompiler::find_empty() {
  const size_t n = tree_.nodes.size();
  node_empty_.assign(n, false);
  rule_empty_.assign(tree_.rules.size(), false);
  std::vector<int32_t> parent(n, -1);
  std::vector<size_t> n_missing(n);  // children of a sequence that are not known to be empty
  std::vector<std::vector<int32_t>> users(tree_.rules.size());
  std::vector<std::vector<int32_t>> rules_of(n);
  std::vector<int32_t> pending;
  for (size_t i = 0; i < n; ++i) {
    const GbnfNode& node = tree_.nodes[i];
    n_missing[i] = node.children.size();
    for (const int32_t child : node.children) {
      parent[static_cast<size_t>(child)] = static_cast<int32_t>(i);
    }
    if (node.kind == Kind::kRule) {
      users[static_cast<size_t>(node.index)].push_back(static_cast<int32_t>(i));
    }
    if ((node.kind == Kind::kLiteral && node.bytes.empty()) || (node.kind == Kind::kSequence && n_missing[i] == 0) ||
        (node.kind == Kind::kRepeat && node.min == 0)) {
      pending.push_back(static_cast<int32_t>(i));
    }
  }
  for (size_t r = 0; r < tree_.rules.size(); ++r) {
    rules_of[static_cast<size_t>(tree_.rules[r].node)].push_back(static_cast<int32_t>(r));
  }
  while (!pending.empty()) {
    const auto i = static_cast<size_t>(pending.back());
    pending.pop_back();
    if (node_empty_[i]) {
      continue;
    }
    node_empty_[i] = true;
    for (const int32_t rule : rules_of[i]) {
      rule_empty_[static_cast<size_t>(rule)] = true;
      const auto& all = users[static_cast<size_t>(rule)];
      pending.insert(pending.end(), all.begin(), all.end());
    }
    if (parent[i] >= 0) {
      const auto p = static_cast<size_t>(parent[i]);
      --n_missing[p];
      if (tree_.nodes[p].kind != Kind::kSequence || n_missing[p] == 0) {
        pending.push_back(parent[i]);
      }
    }
  }
}

// The rules that may stand first in a rule, each once.
std::vector<int32_t> GrammarCompiler::first_rules(int32_t rule) const {
  std::vector<int32_t> result;
  std::vector<int32_t> pending = {tree_.rules[static_cast<size_t>(rule)].node};
  while (!pending.empty()) {
    const GbnfNode& node = tree_.nodes[static_cast<size_t>(pending.back())];
    pending.pop_back();
    if (node.kind == Kind::kRule) {
      result.push_back(node.index);
    } else if (node.kind == Kind::kSequence) {
      for (const int32_t child : node.children) {
        pending.push_back(child);
        if (!node_empty_[static_cast<size_t>(child)]) {
          break;
        }
      }
    } else if (node.kind != Kind::kRepeat || node.max > 0) {
      pending.insert(pending.end(), node.children.begin(), node.children.end());
    }
  }
  std::ranges::sort(result);
  result.erase(std::ranges::unique(result).begin(), result.end());
  return result;
}

// Orders rules so that each comes before those that may begin where it does; depth first, without recursion. A rule
// that is met again on its own path would call itself for ever.
Status GrammarCompiler::find_ranks() {
  struct Visit {
    int32_t rule;
    std::vector<int32_t> first;
    size_t next = 0;
  };
  enum : uint8_t { kNew, kOnPath, kDone };
  const size_t n = tree_.rules.size();
  std::vector<uint8_t> seen(n, kNew);
  auto rank = static_cast<int32_t>(n);
  for (size_t start = 0; start < n; ++start) {
    std::vector<Visit> path;
    const auto enter = [&](int32_t rule) {
      seen[static_cast<size_t>(rule)] = kOnPath;
      path.push_back({rule, first_rules(rule)});
    };
    if (seen[start] == kNew) {
      enter(static_cast<int32_t>(start));
    }
    while (!path.empty()) {
      Visit& top = path.back();
      if (top.next == top.first.size()) {
        seen[static_cast<size_t>(top.rule)] = kDone;
        grammar_->rules_[static_cast<size_t>(top.rule)].rank = --rank;
        path.pop_back();
        continue;
      }
      const int32_t rule = top.first[top.next++];
      if (seen[static_cast<size_t>(rule)] == kNew) {
        enter(rule);
      } else if (seen[static_cast<size_t>(rule)] == kOnPath) {
        std::string way = tree_.rules[static_cast<size_t>(rule)].name;
        const auto from = std::ranges::find(path, rule, &Visit::rule) + 1;
        for (auto step = from; step != path.end() && step - from < 8; ++step) {
          way += " -> " + tree_.rules[static_cast<size_t>(step->rule)].name;
        }
        return {ErrorCode::kInvalidArgument,
                fmt::format("grammar: rule '{0}' begins with itself ({1} -> {0}), which would never read anything; put "
                            "something before it, or write the repetition as ( ... )*",
                            tree_.rules[static_cast<size_t>(rule)].name, way)};
      }
    }
  }
  return {};
}

// Rules that use no other, repeat nothing without end and are small: mostly those for one character.
void GrammarCompiler::find_short_rules() {
  short_.assign(tree_.rules.size(), false);
  std::vector<size_t> n_uses(tree_.rules.size(), 0);
  for (const GbnfNode& node : tree_.nodes) {
    if (node.kind == Kind::kRule) {
      ++n_uses[static_cast<size_t>(node.index)];
    }
  }
  for (size_t i = 0; i < tree_.rules.size(); ++i) {
    size_t size = 0;
    bool is_short = true;
    std::vector<std::pair<int32_t, size_t>> pending = {{tree_.rules[i].node, 1}};
    while (!pending.empty() && is_short) {
      const auto [index, times] = pending.back();
      const GbnfNode& node = tree_.nodes[static_cast<size_t>(index)];
      pending.pop_back();
      const bool is_ascii = node.ranges.empty() || node.ranges.back().last < 0x80;
      size += times * (node.kind == Kind::kLiteral ? node.bytes.size() : is_ascii ? 1 : 4 + node.ranges.size());
      is_short = size <= kMaxInlineStates && node.kind != Kind::kRule && node.max != kUnlimited;
      for (const int32_t child : node.children) {
        pending.emplace_back(child, times * std::max<size_t>(node.kind == Kind::kRepeat ? node.max : 1, 1));
      }
    }
    short_[i] = is_short && size * n_uses[i] <= kMaxInlineTotal;
  }
}

int32_t GrammarCompiler::compile(int32_t index, int32_t next) {
  if (++n_steps_ > kMaxCompileSteps) {
    too_large_ = true;
  }
  if (too_large_) {
    return next;
  }
  const GbnfNode& node = tree_.nodes[static_cast<size_t>(index)];
  switch (node.kind) {
    case Kind::kLiteral: return compile_literal(node.bytes, next);
    case Kind::kClass: return compile_class(node.ranges, next);
    case Kind::kToken:
      return add_state({.kind = StateKind::kToken, .negated = node.negated, .begin = node.index, .end = next});
    case Kind::kRule: return compile_rule(node.index, next);
    case Kind::kRepeat: return compile_repeat(node, next);
    case Kind::kSequence:
      for (size_t i = node.children.size(); i > 0; --i) {
        next = compile(node.children[i - 1], next);
      }
      return next;
    case Kind::kChoice: {
      std::vector<int32_t> targets;
      for (const int32_t child : node.children) {
        targets.push_back(compile(child, next));
      }
      return add_choice(targets);
    }
  }
  return next;
}

int32_t GrammarCompiler::compile_literal(const std::string& bytes, int32_t next) {
  for (size_t i = bytes.size(); i > 0 && !too_large_; --i) {
    const auto byte = static_cast<uint8_t>(bytes[i - 1]);
    next = add_edges({{byte, byte, next}});
  }
  return next;
}

int32_t GrammarCompiler::compile_class(const CodeRanges& ranges, int32_t next) {
  std::vector<Utf8Sequence> sequences;
  for (const CodeRange& range : ranges) {
    append_utf8_sequences(range, sequences);
  }
  // Sequences share the states of equal ends.
  std::map<std::vector<uint8_t>, int32_t> ends;
  std::vector<Grammar::Edge> edges;
  for (const Utf8Sequence& s : sequences) {
    int32_t to = next;
    std::vector<uint8_t> end;
    for (auto i = static_cast<size_t>(s.n_bytes) - 1; i > 0; --i) {
      end.push_back(s.first[i]);
      end.push_back(s.last[i]);
      const auto [found, is_new] = ends.try_emplace(end, 0);
      if (is_new) {
        found->second = add_edges({{s.first[i], s.last[i], to}});
      }
      to = found->second;
    }
    edges.push_back({s.first[0], s.last[0], to});
  }
  return add_edges(edges);
}

int32_t GrammarCompiler::compile_rule(int32_t rule, int32_t next) {
  if (short_[static_cast<size_t>(rule)] && n_copies_ <= kMaxInlineCopies) {
    return compile(tree_.rules[static_cast<size_t>(rule)].node, next);
  }
  if (next == Grammar::kEndState) {
    const int32_t jump = add_choice({&rule, 1});
    jumps_.push_back(jump);
    return jump;
  }
  return add_state({.kind = StateKind::kCall, .begin = rule, .end = next});
}

int32_t GrammarCompiler::compile_repeat(const GbnfNode& repeat, int32_t next) {
  const int32_t child = repeat.children[0];
  const uint64_t n_copies = n_copies_;
  const uint32_t most = repeat.max == kUnlimited ? repeat.min : repeat.max;
  n_copies_ = std::min<uint64_t>(n_copies * std::max(most, 1U), kMaxInlineCopies + 1);
  uint32_t n_certain = repeat.min;
  if (repeat.max == kUnlimited) {
    // A loop around the last copy, which is one of the certain ones if there are any.
    const int32_t again[] = {next, next};
    const int32_t loop = add_choice(again);
    const int32_t body = compile(child, loop);
    if (!too_large_) {
      grammar_->targets_[static_cast<size_t>(grammar_->states_[static_cast<size_t>(loop)].begin)] = body;
    }
    next = n_certain > 0 ? body : loop;
    n_certain -= n_certain > 0 ? 1 : 0;
  } else {
    next = compile_optional_copies(child, repeat.max - repeat.min, next);
  }
  for (uint32_t i = 0; i < n_certain && !too_large_; ++i) {
    next = compile(child, next);
  }
  n_copies_ = n_copies;
  return next;
}

// Up to n of a part. Copies are numbered from the last; those behind number kLast have as many bytes before them as
// anyone looks ahead, and are near the copy kLast, state by state. (A part that may be empty could be passed for
// nothing.)
int32_t GrammarCompiler::compile_optional_copies(int32_t child, uint32_t n, int32_t next) {
  constexpr uint32_t kLast = kGrammarLookahead + 2;
  const int32_t end = next;
  size_t last_begin = 0;
  size_t last_end = 0;
  for (uint32_t i = 1; i <= n && !too_large_; ++i) {
    const size_t begin = grammar_->states_.size();
    const int32_t ways[] = {compile(child, next), end};
    next = add_choice(ways);
    const size_t copy_end = grammar_->states_.size();
    if (i == kLast) {
      last_begin = begin;
      last_end = copy_end;
    } else if (i > kLast && copy_end - begin == last_end - last_begin && !node_empty_[static_cast<size_t>(child)]) {
      for (size_t k = begin; k < copy_end; ++k) {
        grammar_->near_[k] = grammar_->near_[last_begin + k - begin];
      }
      grammar_->has_near_ = true;
    }
  }
  return next;
}

int32_t GrammarCompiler::add_state(State state) {
  if (grammar_->states_.size() >= kMaxGrammarStates) {
    too_large_ = true;
    return Grammar::kEndState;
  }
  grammar_->near_.push_back(static_cast<int32_t>(grammar_->states_.size()));
  grammar_->states_.push_back(state);
  return static_cast<int32_t>(grammar_->states_.size() - 1);
}

int32_t GrammarCompiler::add_edges(const std::vector<Grammar::Edge>& edges) {
  const auto begin = static_cast<int32_t>(grammar_->edges_.size());
  grammar_->edges_.insert(grammar_->edges_.end(), edges.begin(), edges.end());
  return add_state({.kind = StateKind::kBytes, .begin = begin, .end = static_cast<int32_t>(grammar_->edges_.size())});
}

int32_t GrammarCompiler::add_choice(std::span<const int32_t> targets) {
  const auto begin = static_cast<int32_t>(grammar_->targets_.size());
  grammar_->targets_.insert(grammar_->targets_.end(), targets.begin(), targets.end());
  return add_state(
      {.kind = StateKind::kChoice, .begin = begin, .end = static_cast<int32_t>(grammar_->targets_.size())});
}

void GrammarCompiler::set_byte_classes() {
  std::array<bool, 257> begins = {};
  begins[0] = true;
  for (const Grammar::Edge& edge : grammar_->edges_) {
    begins[edge.first] = true;
    begins[edge.last + size_t{1}] = true;
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (begins[byte]) {
      grammar_->class_byte_.push_back(static_cast<uint8_t>(byte));
    }
    grammar_->byte_class_[byte] = static_cast<uint8_t>(grammar_->class_byte_.size() - 1);
  }
}

Result<std::shared_ptr<const Grammar>> Grammar::parse(std::string_view text, const TokenNames& token_names) {
  ASSIGN_OR_RETURN(GbnfTree tree, parse_gbnf(text, token_names));
  return GrammarCompiler(std::move(tree)).compile();
}

}  // namespace tessera

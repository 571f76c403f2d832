#include "runtime/grammar/gbnf.h"

#include <algorithm>
#include <fmt/format.h>
#include <unordered_map>

#include "base/hex.h"
#include "tokenizer/utf8.h"

namespace tessera {
namespace {

constexpr uint32_t kMaxCodePoint = 0x10FFFF;
constexpr CodeRange kSurrogates = {0xD800, 0xDFFF};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
}

uint32_t code_point_of(std::string_view character) {
  const auto lead = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) {
    return lead;
  }
  uint32_t code = lead & (0xFFU >> (character.size() + 1));
  for (const char c : character.substr(1)) {
    code = code << 6 | (static_cast<uint8_t>(c) & 0x3FU);
  }
  return code;
}

void append_utf8(uint32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int n_more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  out += static_cast<char>((0xF00U >> (n_more + 1) & 0xFFU) | code >> (6 * n_more));
  for (int i = n_more - 1; i >= 0; --i) {
    out += static_cast<char>(0x80U | (code >> (6 * i) & 0x3FU));
  }
}

class Parser {
 public:
  Parser(std::string_view text, const TokenNames& token_names) : text_(text), token_names_(token_names) {}

  Result<GbnfTree> parse();

 private:
  Status parse_rule();
  Result<int32_t> parse_choice(int depth);
  Result<int32_t> parse_sequence(int depth);
  Status parse_element(int depth, std::vector<int32_t>& sequence);
  Result<int32_t> parse_literal();
  Result<int32_t> parse_class();
  Result<int32_t> parse_token();
  Result<int32_t> parse_group(int depth);
  Status parse_repetition(std::vector<int32_t>& sequence);
  Status parse_counts(GbnfNode& repeat);
  Result<uint32_t> parse_count();
  Result<uint32_t> parse_character(std::string_view what, size_t opened);

  [[nodiscard]] char at(size_t pos) const { return pos < text_.size() ? text_[pos] : '\0'; }
  [[nodiscard]] bool done() const { return pos_ >= text_.size(); }
  [[nodiscard]] bool next_is(std::string_view mark) const { return text_.substr(pos_).starts_with(mark); }
  void skip_blanks(bool also_newlines);
  std::string_view take_name();
  int32_t rule_of(std::string_view name);
  Result<int32_t> add(GbnfNode node);
  [[nodiscard]] Status fail(size_t pos, std::string_view message) const;
  [[nodiscard]] std::string found() const;

  std::string_view text_;
  const TokenNames& token_names_;
  size_t pos_ = 0;
  GbnfTree tree_;
  std::unordered_map<std::string, int32_t> rules_by_name_;
  std::vector<size_t> first_use_;   // by rule: where its name was first read
  std::vector<size_t> defined_at_;  // by rule: the same for its definition; npos: none yet
};

Status Parser::fail(size_t pos, std::string_view message) const {
  pos = std::min(pos, text_.size());
  const std::string_view before = text_.substr(0, pos);
  const size_t line_begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const auto is_lead = [](char c) { return (static_cast<uint8_t>(c) & 0xC0U) != 0x80; };
  return {ErrorCode::kInvalidArgument,
          fmt::format("grammar, line {}, column {}: {}", std::ranges::count(before, '\n') + 1,
                      std::ranges::count_if(before.substr(line_begin), is_lead) + 1, message)};
}

// What stands here, for "expected ..., found ...".
std::string Parser::found() const {
  if (done()) {
    return "the end";
  }
  if (text_[pos_] == '\n' || text_[pos_] == '\r') {
    return "the end of the line";
  }
  const size_t n = utf8_valid_bytes(text_.substr(pos_));
  const auto c = static_cast<uint8_t>(text_[pos_]);
  return n == 0 || c < 0x20 || c == 0x7F ? fmt::format("byte 0x{:02X}", c) : fmt::format("'{}'", text_.substr(pos_, n));
}

void Parser::skip_blanks(bool also_newlines) {
  while (!done()) {
    const char c = text_[pos_];
    if (c == '#') {
      pos_ = std::min(text_.find_first_of("\r\n", pos_), text_.size());
    } else if (c == ' ' || c == '\t' || (also_newlines && (c == '\n' || c == '\r'))) {
      ++pos_;
    } else {
      break;
    }
  }
}

std::string_view Parser::take_name() {
  const size_t begin = pos_;
  while (!done() && is_name(text_[pos_])) {
    ++pos_;
  }
  return text_.substr(begin, pos_ - begin);
}

int32_t Parser::rule_of(std::string_view name) {
  const auto [found, is_new] = rules_by_name_.try_emplace(std::string(name), static_cast<int32_t>(tree_.rules.size()));
  if (is_new) {
    tree_.rules.push_back({std::string(name), 0});
    first_use_.push_back(static_cast<size_t>(name.data() - text_.data()));
    defined_at_.push_back(std::string_view::npos);
  }
  return found->second;
}

Result<int32_t> Parser::add(GbnfNode node) {
  if (tree_.nodes.size() == kMaxGrammarNodes) {
    return fail(pos_, fmt::format("the grammar has more than {} parts; make it smaller", kMaxGrammarNodes));
  }
  for (const int32_t child : node.children) {
    node.height = std::max(node.height, tree_.nodes[static_cast<size_t>(child)].height + 1);
  }
  if (node.height > kMaxTreeDepth) {
    return fail(pos_, "too many operators on one part of the grammar; leave out those that change nothing");
  }
  tree_.nodes.push_back(std::move(node));
  return static_cast<int32_t>(tree_.nodes.size() - 1);
}

Result<GbnfTree> Parser::parse() {
  if (text_.size() > kMaxGrammarBytes) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("the grammar has {} bytes, more than {}; make it smaller",
                                                           text_.size(), kMaxGrammarBytes));
  }
  for (skip_blanks(true); !done(); skip_blanks(true)) {
    TRY(parse_rule());
  }
  for (size_t i = 0; i < tree_.rules.size(); ++i) {
    if (defined_at_[i] == std::string_view::npos) {
      return fail(first_use_[i],
                  fmt::format("there is no rule '{0}'; add '{0} ::= ...' or correct the name", tree_.rules[i].name));
    }
  }
  const auto root = rules_by_name_.find("root");
  if (root == rules_by_name_.end()) {
    return Status(ErrorCode::kInvalidArgument, "the grammar has no rule 'root', where it begins; add 'root ::= ...'");
  }
  tree_.root = root->second;
  return std::move(tree_);
}

Status Parser::parse_rule() {
  const size_t begin = pos_;
  const std::string_view name = take_name();
  if (name.empty()) {
    return fail(pos_, fmt::format("expected the name of a rule (letters, digits, - and _), found {}", found()));
  }
  const auto rule = static_cast<size_t>(rule_of(name));
  if (defined_at_[rule] != std::string_view::npos) {
    return fail(begin, fmt::format("rule '{}' is defined twice; join both with |", name));
  }
  defined_at_[rule] = begin;
  skip_blanks(false);
  if (!next_is("::=")) {
    return fail(pos_, fmt::format("expected ::= after the rule's name '{}', found {}", name, found()));
  }
  pos_ += 3;
  skip_blanks(true);
  ASSIGN_OR_RETURN(tree_.rules[rule].node, parse_choice(0));
  if (!done() && text_[pos_] != '\n' && text_[pos_] != '\r') {
    const bool closes = text_[pos_] == ')';
    return fail(pos_,
                closes ? "this ) closes no group; remove it"
                       : fmt::format("expected the rest of rule '{}' or the end of the line, found {}", name, found()));
  }
  return {};
}

// In a group (depth > 0) lines do not matter.
Result<int32_t> Parser::parse_choice(int depth) {
  GbnfNode choice{.kind = GbnfNode::Kind::kChoice};
  while (true) {
    ASSIGN_OR_RETURN(const int32_t sequence, parse_sequence(depth));
    choice.children.push_back(sequence);
    const size_t end = pos_;
    skip_blanks(true);  // the next alternative may stand on a line of its own
    if (at(pos_) != '|') {
      pos_ = depth > 0 ? pos_ : end;
      break;
    }
    ++pos_;
    skip_blanks(true);
  }
  return choice.children.size() == 1 ? Result<int32_t>(choice.children[0]) : add(std::move(choice));
}

Result<int32_t> Parser::parse_sequence(int depth) {
  GbnfNode sequence;
  constexpr std::string_view kEnds = "|)\r\n";
  while (!done() && kEnds.find(text_[pos_]) == std::string_view::npos) {
    TRY(parse_element(depth, sequence.children));
    skip_blanks(depth > 0);
  }
  return sequence.children.size() == 1 ? Result<int32_t>(sequence.children[0]) : add(std::move(sequence));
}

Status Parser::parse_element(int depth, std::vector<int32_t>& sequence) {
  const char c = text_[pos_];
  if (c == '*' || c == '+' || c == '?' || c == '{') {
    return parse_repetition(sequence);
  }
  Result<int32_t> element(0);
  if (c == '"') {
    element = parse_literal();
  } else if (c == '[') {
    element = parse_class();
  } else if (c == '(') {
    element = parse_group(depth);
  } else if (c == '<' || (c == '!' && at(pos_ + 1) == '<')) {
    element = parse_token();
  } else if (c == '.') {
    ++pos_;
    element = add({.kind = GbnfNode::Kind::kClass, .ranges = inverted({})});
  } else if (is_name(c)) {
    element = add({.kind = GbnfNode::Kind::kRule, .index = rule_of(take_name())});
  } else {
    return fail(pos_,
                fmt::format("expected a rule's name, \"text\", [class], (group), ., <token> or |, found {}", found()));
  }
  ASSIGN_OR_RETURN(const int32_t node, element);
  sequence.push_back(node);
  return {};
}

Result<int32_t> Parser::parse_literal() {
  const size_t opened = pos_++;
  GbnfNode literal{.kind = GbnfNode::Kind::kLiteral};
  while (at(pos_) != '"') {
    ASSIGN_OR_RETURN(const uint32_t code, parse_character("\"", opened));
    append_utf8(code, literal.bytes);
  }
  ++pos_;
  return add(std::move(literal));
}

Result<int32_t> Parser::parse_class() {
  const size_t opened = pos_++;
  GbnfNode node{.kind = GbnfNode::Kind::kClass};
  const bool negated = at(pos_) == '^';
  pos_ += negated ? 1 : 0;
  CodeRanges ranges;
  while (at(pos_) != ']') {
    const size_t begin = pos_;
    ASSIGN_OR_RETURN(const uint32_t first, parse_character("]", opened));
    uint32_t last = first;
    if (at(pos_) == '-' && at(pos_ + 1) != ']') {
      ++pos_;
      ASSIGN_OR_RETURN(last, parse_character("]", opened));
    }
    if (first > last) {
      return fail(begin, "this range ends before it begins; swap its ends");
    }
    ranges.push_back({first, last});
  }
  ++pos_;
  node.ranges = inverted(normalized(std::move(ranges)));
  if (!negated) {
    node.ranges = inverted(node.ranges);  // twice: the same without surrogates
  }
  if (node.ranges.empty()) {
    return fail(opened, "no character is in this class; name some");
  }
  return add(std::move(node));
}

// A character of a literal or class, escaped or not. what: the mark that would close it.
Result<uint32_t> Parser::parse_character(std::string_view what, size_t opened) {
  if (done() || (text_[pos_] == '\n' || text_[pos_] == '\r')) {
    return fail(opened, fmt::format("the {} that begins here is not closed on its line; add {}, and write \\n for a "
                                    "newline",
                                    what == "]" ? "class" : "literal", what));
  }
  if (text_[pos_] != '\\') {
    const size_t n = utf8_valid_bytes(text_.substr(pos_));
    if (n == 0) {
      return fail(pos_, fmt::format("byte 0x{:02X} is not UTF-8; save the grammar as UTF-8",
                                    static_cast<uint8_t>(text_[pos_])));
    }
    const uint32_t code = code_point_of(text_.substr(pos_, n));
    pos_ += n;
    return code;
  }
  constexpr std::string_view kNames = "nrt\\\"[]-^";
  constexpr std::string_view kCodes = "\n\r\t\\\"[]-^";
  const char kind = at(pos_ + 1);
  if (const size_t i = kNames.find(kind); i != std::string_view::npos && pos_ + 1 < text_.size()) {
    pos_ += 2;
    return static_cast<uint32_t>(kCodes[i]);
  }
  const size_t n_digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
  if (n_digits == 0) {
    return fail(pos_,
                "unknown escape; there are \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH, and \\\\ is a "
                "backslash");
  }
  uint32_t code = 0;
  for (size_t i = 0; i < n_digits; ++i) {
    const int digit = hex_value(at(pos_ + 2 + i));
    if (digit < 0) {
      return fail(pos_, fmt::format("\\{} needs {} hexadecimal digits", kind, n_digits));
    }
    code = code << 4 | static_cast<uint32_t>(digit);
  }
  if (code > kMaxCodePoint || (code >= kSurrogates.first && code <= kSurrogates.last)) {
    return fail(pos_, fmt::format("U+{:04X} is no character; they go to U+10FFFF, without U+D800 to U+DFFF", code));
  }
  pos_ += 2 + n_digits;
  return code;
}

Result<int32_t> Parser::parse_token() {
  const size_t opened = pos_;
  GbnfNode node{.kind = GbnfNode::Kind::kToken, .negated = at(pos_) == '!'};
  pos_ += node.negated ? 1 : 0;
  const size_t begin = pos_;
  const size_t end = text_.find_first_of(">\r\n", pos_);
  if (end == std::string_view::npos || text_[end] != '>') {
    return fail(opened, "the token that begins here is not closed; write <[ID]> or <name>");
  }
  pos_ = end + 1;
  const std::string_view name = text_.substr(begin, pos_ - begin);
  if (name.starts_with("<[")) {
    const std::string_view digits = name.substr(2, name.size() - 4);
    if (!name.ends_with("]>") || name.size() < 5 || digits.size() > 9 || !std::ranges::all_of(digits, is_digit)) {
      return fail(opened, "expected a token id such as <[1000]>");
    }
    for (const char c : digits) {
      node.index = node.index * 10 + (c - '0');
    }
    return add(std::move(node));
  }
  const std::optional<int32_t> id = token_names_ ? token_names_(name) : std::nullopt;
  if (!id) {
    return fail(opened, fmt::format("the model has no token '{}'; write its text as \"literal\", or its id as <[ID]>",
                                    name.substr(0, 60)));
  }
  node.index = *id;
  return add(std::move(node));
}

Result<int32_t> Parser::parse_group(int depth) {
  const size_t opened = pos_++;
  if (depth == kMaxGrammarDepth) {
    return fail(opened,
                fmt::format("groups lie more than {} deep in each other; make rules of them", kMaxGrammarDepth));
  }
  skip_blanks(true);
  ASSIGN_OR_RETURN(const int32_t inner, parse_choice(depth + 1));
  if (at(pos_) != ')') {
    return fail(opened, fmt::format("the group that begins here is not closed: expected ), found {}", found()));
  }
  ++pos_;
  return inner;
}

Status Parser::parse_repetition(std::vector<int32_t>& sequence) {
  if (sequence.empty()) {
    return fail(pos_, fmt::format("'{0}' repeats nothing: expected something before it; for the character itself "
                                  "write \"{0}\"",
                                  text_[pos_]));
  }
  GbnfNode repeat{.kind = GbnfNode::Kind::kRepeat, .max = kUnlimited, .children = {sequence.back()}};
  const char c = text_[pos_];
  if (c == '{') {
    TRY(parse_counts(repeat));
  } else {
    ++pos_;
    repeat.min = c == '+' ? 1 : 0;
    repeat.max = c == '?' ? 1 : kUnlimited;
  }
  ASSIGN_OR_RETURN(sequence.back(), add(std::move(repeat)));
  return {};
}

Status Parser::parse_counts(GbnfNode& repeat) {
  const size_t opened = pos_++;
  ASSIGN_OR_RETURN(repeat.min, parse_count());
  repeat.max = repeat.min;
  if (at(pos_) == ',') {
    ++pos_;
    skip_blanks(false);
    repeat.max = kUnlimited;
    if (at(pos_) != '}') {
      ASSIGN_OR_RETURN(repeat.max, parse_count());
    }
  }
  if (at(pos_) != '}') {
    return fail(pos_, fmt::format("expected }} or , in {{n,m}}, found {}", found()));
  }
  ++pos_;
  if (repeat.max < repeat.min) {
    return fail(opened,
                fmt::format("{{{},{}}} asks for at least more than at most; swap the numbers", repeat.min, repeat.max));
  }
  return {};
}

Result<uint32_t> Parser::parse_count() {
  skip_blanks(false);
  const size_t begin = pos_;
  uint32_t count = 0;
  while (is_digit(at(pos_)) && count <= kMaxRepetitions) {
    count = count * 10 + static_cast<uint32_t>(at(pos_++) - '0');
  }
  if (pos_ == begin) {
    return fail(pos_, fmt::format("expected a whole number in {{n,m}}, found {}", found()));
  }
  if (count > kMaxRepetitions) {
    return fail(begin, fmt::format("more than {} repetitions; write {{n,}} for any number", kMaxRepetitions));
  }
  skip_blanks(false);
  return count;
}

}  // namespace

CodeRanges normalized(CodeRanges ranges) {
  std::ranges::sort(ranges, {}, &CodeRange::first);
  CodeRanges result;
  for (const CodeRange& range : ranges) {
    if (!result.empty() && range.first <= result.back().last + 1) {
      result.back().last = std::max(result.back().last, range.last);
    } else {
      result.push_back(range);
    }
  }
  return result;
}

CodeRanges inverted(const CodeRanges& ranges) {
  CodeRanges without = ranges;
  without.push_back(kSurrogates);
  CodeRanges result;
  uint32_t next = 0;
  for (const CodeRange& range : normalized(std::move(without))) {
    if (range.first > next) {
      result.push_back({next, range.first - 1});
    }
    next = range.last + 1;
  }
  if (next <= kMaxCodePoint) {
    result.push_back({next, kMaxCodePoint});
  }
  return result;
}

Result<GbnfTree> parse_gbnf(std::string_view text, const TokenNames& token_names) {
  return Parser(text, token_names).parse();
}

}  // namespace tessera

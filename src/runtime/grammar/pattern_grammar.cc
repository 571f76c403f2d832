#include "runtime/grammar/pattern_grammar.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "base/hex.h"
#include "runtime/grammar/gbnf_text.h"
#include "tokenizer/utf8.h"

namespace tessera {
namespace {

constexpr size_t kMaxPatternBytes = 64U << 10;
constexpr int kMaxPatternDepth = 100;
constexpr uint64_t kMaxLength = uint64_t{1} << 40;  // lengths are counted no further

struct Part {
  std::string text;           // GBNF; "" where nothing is read
  uint64_t min = 0, max = 0;  // characters
  std::string repeated;       // of a quantified single character: what repeats
};

uint64_t times(uint64_t a, uint64_t b) {
  return a == 0 || b == 0 ? 0 : a > kMaxLength / b ? kMaxLength : std::min(a * b, kMaxLength);
}

const CodeRanges kDigits = {{'0', '9'}};
const CodeRanges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodeRanges kSpace = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                           {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodeRanges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

/// One character of the set as JSON spells it; "" if JSON has no short spelling for any.
std::string spelled(const CodeRanges& set) {
  CodeRanges raw;
  std::string escapes;
  const auto add_escape = [&](char code, std::string_view letter) {
    const bool is_in = std::ranges::any_of(set, [&](const CodeRange& r) {
      return r.first <= static_cast<uint8_t>(code) && static_cast<uint8_t>(code) <= r.last;
    });
    escapes += is_in ? letter : "";
  };
  constexpr CodeRange kRaw[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}, {0x80, 0xD7FF}, {0xE000, 0x10FFFF}};
  for (const CodeRange& r : set) {
    for (const CodeRange& allowed : kRaw) {
      const CodeRange common = {std::max(r.first, allowed.first), std::min(r.last, allowed.last)};
      if (common.first <= common.last) {
        raw.push_back(common);
      }
    }
  }
  add_escape('"', "\\\"");
  add_escape('\\', "\\\\");
  add_escape('\n', "n");
  add_escape('\r', "r");
  add_escape('\t', "t");
  add_escape('\b', "b");
  add_escape('\f', "f");
  const std::string escaped = escapes.empty() ? "" : fmt::format("\"\\\\\" [{}]", escapes);
  if (raw.empty()) {
    return escaped.empty() ? "" : "(" + escaped + ")";
  }
  const std::string plain = gbnf_class(normalized(std::move(raw)));
  return escaped.empty() ? plain : fmt::format("({} | {})", plain, escaped);
}

class PatternParser {
 public:
  PatternParser(std::string_view pattern, std::string_view any_char) : pattern_(pattern), any_char_(any_char) {}

  Result<Part> parse();

 private:
  Result<Part> parse_choice(int depth);
  Result<Part> parse_alternative(int depth);
  Result<Part> parse_atom(int depth);
  Result<Part> parse_group(int depth);
  Result<Part> parse_class();
  Result<CodeRanges> parse_escape(bool in_class);
  Result<CodeRange> parse_class_end(CodeRanges& set, bool& is_set);
  Result<uint32_t> parse_hex(size_t n_digits);
  Status parse_quantifier(Part& part);
  bool parse_counts(uint32_t& min, uint32_t& max);
  Result<Part> character(const CodeRanges& set, size_t begin);
  Result<uint32_t> take_character();

  [[nodiscard]] bool done() const { return pos_ >= pattern_.size(); }
  [[nodiscard]] char at(size_t pos) const { return pos < pattern_.size() ? pattern_[pos] : '\0'; }
  [[nodiscard]] bool next_is(std::string_view mark) const { return pattern_.substr(pos_).starts_with(mark); }
  [[nodiscard]] static Status fail(ErrorCode code, size_t pos, std::string_view message) {
    return {code, fmt::format("pattern, at character {}: {}", pos + 1, message)};
  }
  [[nodiscard]] static Status bad(size_t pos, std::string_view message) {
    return fail(ErrorCode::kInvalidArgument, pos, message);
  }
  [[nodiscard]] static Status unsupported(size_t pos, std::string_view what) {
    return fail(ErrorCode::kUnsupported, pos, fmt::format("{} cannot be part of a grammar; write it without", what));
  }

  std::string_view pattern_;
  std::string_view any_char_;
  size_t pos_ = 0;
};

Result<Part> PatternParser::parse() {
  if (pattern_.size() > kMaxPatternBytes) {
    return bad(0, fmt::format("it has more than {} bytes", kMaxPatternBytes));
  }
  if (!utf8_is_valid(pattern_)) {
    return bad(0, "it is not UTF-8");
  }
  ASSIGN_OR_RETURN(Part part, parse_choice(0));
  if (!done()) {
    return bad(pos_, "this ) closes no group");
  }
  return part;
}

// Anchors count at the ends of the outermost alternatives; anything may stand where there is none.
Result<Part> PatternParser::parse_choice(int depth) {
  Part choice{"(", kMaxLength, 0, ""};
  size_t n = 0;
  for (bool more = true; more; ++n) {
    ASSIGN_OR_RETURN(Part alternative, parse_alternative(depth));
    choice.text += (n > 0 ? " | " : "") + (alternative.text.empty() ? "\"\"" : alternative.text);
    choice.min = std::min(choice.min, alternative.min);
    choice.max = std::max(choice.max, alternative.max);
    choice.repeated = n == 0 ? alternative.repeated : "";
    more = at(pos_) == '|';
    pos_ += more ? 1 : 0;
  }
  choice.text += ")";
  return choice;
}

Result<Part> PatternParser::parse_alternative(int depth) {
  Part row;
  size_t n_parts = 0;
  const auto append = [&](const Part& part) {
    row.text += (row.text.empty() || part.text.empty() ? "" : " ") + part.text;
    row.min = std::min(row.min + part.min, kMaxLength);
    row.max = std::min(row.max + part.max, kMaxLength);
    row.repeated = n_parts++ == 0 ? part.repeated : "";
  };
  const Part anything{std::string(any_char_) + "*", 0, kMaxLength, ""};
  if (at(pos_) == '^' && depth == 0) {
    ++pos_;
  } else if (depth == 0) {
    append(anything);
  }
  bool ended = false;
  while (!done() && pattern_[pos_] != '|' && pattern_[pos_] != ')') {
    if (ended || (pattern_[pos_] == '^') || (pattern_[pos_] == '$' && depth > 0)) {
      return unsupported(pos_, "an anchor inside");
    }
    if (pattern_[pos_] == '$') {
      ended = true;
      ++pos_;
      continue;
    }
    ASSIGN_OR_RETURN(Part part, parse_atom(depth));
    TRY(parse_quantifier(part));
    append(part);
  }
  if (depth == 0 && !ended) {
    append(anything);
  }
  return row;
}

Result<Part> PatternParser::parse_atom(int depth) {
  const size_t begin = pos_;
  switch (pattern_[pos_]) {
    case '(': return parse_group(depth);
    case '[': return parse_class();
    case '.': ++pos_; return character(inverted(kLineEnds), begin);
    case '*':
    case '+':
    case '?': return bad(pos_, "this quantifier has nothing before it; write \\ before the character itself");
    case '\\': {
      ASSIGN_OR_RETURN(const CodeRanges set, parse_escape(false));
      return character(set, begin);
    }
    default: {
      ASSIGN_OR_RETURN(const uint32_t code, take_character());
      return character({{code, code}}, begin);
    }
  }
}

Result<Part> PatternParser::character(const CodeRanges& set, size_t begin) {
  const std::string text = spelled(set);
  if (text.empty()) {
    return bad(begin, "no character that a JSON string may hold fits here");
  }
  return Part{text, 1, 1, ""};
}

Result<Part> PatternParser::parse_group(int depth) {
  const size_t opened = pos_++;
  if (depth == kMaxPatternDepth) {
    return bad(opened, fmt::format("groups lie more than {} deep in each other", kMaxPatternDepth));
  }
  if (next_is("?:")) {
    pos_ += 2;
  } else if (next_is("?<") && at(pos_ + 2) != '=' && at(pos_ + 2) != '!') {
    const size_t end = pattern_.find('>', pos_);
    if (end == std::string_view::npos) {
      return bad(opened, "the name of this group is not closed with >");
    }
    pos_ = end + 1;
  } else if (next_is("?")) {
    return unsupported(opened, fmt::format("({}", pattern_.substr(pos_, at(pos_ + 1) == '<' ? 3 : 2)));
  }
  ASSIGN_OR_RETURN(Part inner, parse_choice(depth + 1));
  if (at(pos_) != ')') {
    return bad(opened, "this group is not closed with )");
  }
  ++pos_;
  inner.repeated.clear();
  return inner;
}

Result<Part> PatternParser::parse_class() {
  const size_t opened = pos_++;
  const bool negated = at(pos_) == '^';
  pos_ += negated ? 1 : 0;
  CodeRanges set;
  while (at(pos_) != ']') {
    if (done()) {
      return bad(opened, "this class is not closed with ]");
    }
    const size_t begin = pos_;
    bool is_set = false;
    ASSIGN_OR_RETURN(CodeRange range, parse_class_end(set, is_set));
    if (!is_set && at(pos_) == '-' && at(pos_ + 1) != ']' && pos_ + 1 < pattern_.size()) {
      ++pos_;
      bool is_set_behind = false;
      ASSIGN_OR_RETURN(const CodeRange last, parse_class_end(set, is_set_behind));
      if (is_set_behind) {  // as in [a-\d]: the - is itself
        set.push_back({'-', '-'});
      } else {
        range.last = last.last;
      }
    }
    if (range.first > range.last) {
      return bad(begin, "this range ends before it begins");
    }
    if (!is_set) {
      set.push_back(range);
    }
  }
  ++pos_;
  set = normalized(std::move(set));
  return character(negated ? inverted(set) : set, opened);
}

// One end of a range; where it is a set such as \d, that is added to `set`.
Result<CodeRange> PatternParser::parse_class_end(CodeRanges& set, bool& is_set) {
  if (at(pos_) != '\\') {
    ASSIGN_OR_RETURN(const uint32_t code, take_character());
    return CodeRange{code, code};
  }
  ASSIGN_OR_RETURN(const CodeRanges escaped, parse_escape(true));
  is_set = escaped.size() != 1 || escaped[0].first != escaped[0].last;
  if (is_set) {
    set.insert(set.end(), escaped.begin(), escaped.end());
  }
  return escaped[0];
}

Result<uint32_t> PatternParser::take_character() {
  const size_t n = utf8_valid_bytes(pattern_.substr(pos_));
  const auto lead = static_cast<uint8_t>(pattern_[pos_]);
  uint32_t code = n == 1 ? lead : lead & (0xFFU >> (n + 1));
  for (size_t i = 1; i < n; ++i) {
    code = code << 6 | (static_cast<uint8_t>(pattern_[pos_ + i]) & 0x3FU);
  }
  pos_ += n;
  return code;
}

Result<CodeRanges> PatternParser::parse_escape(bool in_class) {
  const size_t begin = pos_++;
  if (done()) {
    return bad(begin, "\\ at the end stands for nothing; write \\\\ for a backslash");
  }
  const char c = pattern_[pos_++];
  switch (c) {
    case 'd': return kDigits;
    case 'D': return inverted(kDigits);
    case 'w': return kWord;
    case 'W': return inverted(kWord);
    case 's': return kSpace;
    case 'S': return inverted(kSpace);
    case 'n': return CodeRanges{{'\n', '\n'}};
    case 'r': return CodeRanges{{'\r', '\r'}};
    case 't': return CodeRanges{{'\t', '\t'}};
    case 'f': return CodeRanges{{'\f', '\f'}};
    case 'v': return CodeRanges{{'\v', '\v'}};
    case 'b':
      if (in_class) {
        return CodeRanges{{'\b', '\b'}};
      }
      break;
    case 'x':
    case 'u': {
      ASSIGN_OR_RETURN(const uint32_t code, parse_hex(c == 'x' ? 2 : 4));
      return CodeRanges{{code, code}};
    }
    default:
      if ((c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')) {
        --pos_;
        ASSIGN_OR_RETURN(const uint32_t code, take_character());
        return CodeRanges{{code, code}};
      }
  }
  return unsupported(begin, fmt::format("\\{}", c));
}

Result<uint32_t> PatternParser::parse_hex(size_t n_digits) {
  const size_t begin = pos_;
  const bool braced = n_digits == 4 && at(pos_) == '{';
  pos_ += braced ? 1 : 0;
  uint32_t code = 0;
  size_t n = 0;
  for (; n < (braced ? 6 : n_digits); ++n, ++pos_) {
    const int digit = hex_value(at(pos_));
    if (digit < 0) {
      break;
    }
    code = code << 4 | static_cast<uint32_t>(digit);
  }
  const bool is_closed = !braced || at(pos_) == '}';
  if (n == 0 || (!braced && n < n_digits) || !is_closed || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
    return bad(begin, "this is no hexadecimal number of a character");
  }
  pos_ += braced ? 1 : 0;
  return code;
}

Status PatternParser::parse_quantifier(Part& part) {
  const size_t begin = pos_;
  uint32_t min = 1;
  uint32_t max = 1;
  switch (at(pos_)) {
    case '*':
    case '+':
    case '?':
      min = at(pos_) == '+' ? 1 : 0;
      max = at(pos_) == '?' ? 1 : kUnlimited;
      ++pos_;
      break;
    case '{':
      if (!parse_counts(min, max)) {
        return {};  // a brace that is itself
      }
      break;
    default: return {};
  }
  if (at(pos_) == '?') {
    ++pos_;
  }
  if (!done() && std::string_view("*+?{").find(at(pos_)) != std::string_view::npos) {
    return bad(pos_, "a quantifier repeats another; put the first into a group");
  }
  if (min > max || (max != kUnlimited && max > kMaxRepetitions) || min > kMaxRepetitions) {
    return bad(begin, fmt::format("a quantifier is {{n}}, {{n,}} or {{n,m}} with n <= m <= {}", kMaxRepetitions));
  }
  if (part.min == 1 && part.max == 1) {
    part.repeated = part.text;
  }
  part.text = max == 0 ? "" : part.text + gbnf_repeat(min, max);
  part.min = times(part.min, min);
  part.max = times(part.max, max == kUnlimited ? kMaxLength : max);
  return {};
}

bool PatternParser::parse_counts(uint32_t& min, uint32_t& max) {
  size_t p = pos_ + 1;
  const auto number = [&](uint32_t& value) {
    const size_t begin = p;
    uint64_t n = 0;
    for (; at(p) >= '0' && at(p) <= '9'; ++p) {
      n = std::min<uint64_t>(n * 10 + static_cast<uint64_t>(at(p) - '0'), kMaxRepetitions + 1);
    }
    value = static_cast<uint32_t>(n);
    return p > begin;
  };
  uint32_t low = 0;
  if (!number(low)) {
    return false;
  }
  uint32_t high = low;
  if (at(p) == ',') {
    ++p;
    if (!number(high)) {
      high = kUnlimited;
    }
  }
  if (at(p) != '}') {
    return false;
  }
  pos_ = p + 1;
  min = low;
  max = high;
  return true;
}

}  // namespace

Result<std::string> pattern_grammar(std::string_view pattern, std::string_view any_char, LengthBounds length) {
  ASSIGN_OR_RETURN(const Part part, PatternParser(pattern, any_char).parse());
  const uint64_t max = part.max == kMaxLength ? UINT64_MAX : part.max;
  if (part.min >= length.min && max <= length.max) {
    return part.text;
  }
  const uint64_t narrowed_min = std::max(part.min, length.min);
  const uint64_t narrowed_max = std::min(max, length.max);
  if (!part.repeated.empty() && narrowed_min <= narrowed_max && narrowed_min <= kMaxRepetitions &&
      (narrowed_max == UINT64_MAX || narrowed_max <= kMaxRepetitions)) {
    const uint32_t most = narrowed_max == UINT64_MAX ? kUnlimited : static_cast<uint32_t>(narrowed_max);
    return most == 0 ? std::string("(\"\")")
                     : fmt::format("({}{})", part.repeated, gbnf_repeat(static_cast<uint32_t>(narrowed_min), most));
  }
  return Status(ErrorCode::kUnsupported,
                "minLength and maxLength beside a pattern that does not keep to them itself cannot be enforced; write "
                "the length into the pattern, as in ^[a-z]{2,8}$");
}

}  // namespace tessera

#include "tokenizer/template/lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "fmt/format.h"

#include "tokenizer/template/unicode.h"

namespace tessera::jinja {
namespace {

std::string normalize_newlines(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      result += '\n';
      i += i + 1 < source.size() && source[i + 1] == '\n' ? 1U : 0U;
    } else {
      result += source[i];
    }
  }
  if (!result.empty() && result.back() == '\n') {
    result.pop_back();
  }
  return result;
}

size_t skip_spaces(std::string_view s, size_t pos) {
  uint32_t c = 0;
  while (pos < s.size()) {
    const size_t length = decode(s, pos, &c);
    if (!is_space(c)) {
      break;
    }
    pos += length;
  }
  return pos;
}

std::string_view strip_right(std::string_view s) {
  while (!s.empty()) {
    const size_t length = length_before(s, s.size());
    uint32_t c = 0;
    decode(s, s.size() - length, &c);
    if (!is_space(c)) {
      break;
    }
    s.remove_suffix(length);
  }
  return s;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name_char(uint32_t c) {
  return c < 0x80 ? (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'
                  : is_alpha(c) || is_numeric(c);
}

/// Value of `n` hex digits at `pos`; -1 when there are fewer.
int64_t hex_digits(std::string_view s, size_t pos, size_t n) {
  uint32_t value = 0;
  if (pos + n > s.size()) {
    return -1;
  }
  const auto end = std::from_chars(s.data() + pos, s.data() + pos + n, value, 16);
  return end.ptr == s.data() + pos + n && end.ec == std::errc() ? static_cast<int64_t>(value) : -1;
}

/// Resolves the escapes of Python's string literals. Returns a message when one is malformed.
std::string_view unescape(std::string_view s, std::string* out) {
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '\\' || i + 1 == s.size()) {
      *out += s[i];
      continue;
    }
    const char c = s[++i];
    static constexpr std::string_view kFrom = "\\'\"abfnrtv";
    static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t simple = kFrom.find(c); simple != std::string_view::npos) {
      *out += kTo[simple];
    } else if (c == '\n') {
      continue;
    } else if (c >= '0' && c <= '7') {
      uint32_t value = 0;
      size_t n = 0;
      for (; n < 3 && i + n < s.size() && s[i + n] >= '0' && s[i + n] <= '7'; ++n) {
        value = value * 8 + static_cast<uint32_t>(s[i + n] - '0');
      }
      encode(value, *out);
      i += n - 1;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      int64_t value = hex_digits(s, i + 1, n);
      if (value < 0 || value > 0x10FFFF) {
        return "malformed \\x, \\u or \\U escape in a string";
      }
      i += n;
      if (value >= 0xD800 && value < 0xDC00 && s.substr(i + 1, 2) == "\\u") {
        const int64_t low = hex_digits(s, i + 3, 4);
        if (low >= 0xDC00 && low < 0xE000) {
          value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
          i += 6;
        }
      }
      encode(static_cast<uint32_t>(value), *out);
    } else {
      *out += '\\';
      *out += c;
    }
  }
  return {};
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (pos_ < source_.size()) {
      TRY(lex_root());
    }
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] bool starts_with(size_t pos, std::string_view s) const { return source_.substr(pos, s.size()) == s; }

  void push(TokenKind kind, std::string_view text) {
    tokens_.emplace_back();
    tokens_.back().kind = kind;
    tokens_.back().line = line_;
    tokens_.back().text = text;
  }

  /// Moves to `pos`, counting lines.
  void advance(size_t pos) {
    line_ += static_cast<uint32_t>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(pos_),
                                              source_.begin() + static_cast<std::ptrdiff_t>(pos), '\n'));
    line_starting_ = pos > pos_ ? source_[pos - 1] == '\n' : line_starting_;
    pos_ = pos;
  }

  /// The part of `text` that stays in front of a tag with the given sign.
  [[nodiscard]] std::string_view before_tag(std::string_view text, char sign, bool strip_blanks) const {
    if (sign == '-') {
      return strip_right(text);
    }
    if (sign != '+' && strip_blanks) {
      const size_t line = text.rfind('\n') + 1;  // npos + 1 == 0
      if ((line > 0 || line_starting_) && line < text.size() && skip_spaces(text, line) == text.size()) {
        return text.substr(0, line);
      }
    }
    return text;
  }

  /// `-%}` and following space, `%}` and one newline if `trim`, or `+%}`: end of the match at `pos`, or 0 if no match.
  [[nodiscard]] size_t match_end(size_t pos, std::string_view delimiter, bool plus, bool trim) const {
    if (starts_with(pos, delimiter)) {
      const size_t end = pos + delimiter.size();
      return trim && end < source_.size() && source_[end] == '\n' ? end + 1 : end;
    }
    if (pos < source_.size() && starts_with(pos + 1, delimiter)) {
      if (source_[pos] == '-') {
        return skip_spaces(source_, pos + 1 + delimiter.size());
      }
      if (source_[pos] == '+' && plus) {
        return pos + 1 + delimiter.size();
      }
    }
    return 0;
  }

  /// If a `{% raw %}` tag stands at `pos`: its end, else 0.
  [[nodiscard]] size_t match_raw(size_t pos, std::string_view word, bool plus, bool trim, char* sign) const {
    if (!starts_with(pos, "{%")) {
      return 0;
    }
    pos += 2;
    *sign = pos < source_.size() && (source_[pos] == '-' || source_[pos] == '+') ? source_[pos] : '\0';
    pos = skip_spaces(source_, pos + (*sign != '\0' ? 1 : 0));
    if (!starts_with(pos, word)) {
      return 0;
    }
    return match_end(skip_spaces(source_, pos + word.size()), "%}", plus, trim);
  }

  Status lex_root() {
    size_t begin = pos_;
    while (begin < source_.size() &&
           !(source_[begin] == '{' && begin + 1 < source_.size() &&
             (source_[begin + 1] == '{' || source_[begin + 1] == '%' || source_[begin + 1] == '#'))) {
      begin = std::min(source_.find('{', begin + 1), source_.size());
    }
    const std::string_view text = source_.substr(pos_, begin - pos_);
    if (begin == source_.size()) {
      push_data(text);
      advance(begin);
      return {};
    }
    char sign = '\0';
    const size_t raw_end = match_raw(begin, "raw", false, false, &sign);
    if (raw_end != 0) {
      push_data(before_tag(text, sign, true));
      advance(raw_end);
      return lex_raw();
    }
    const char kind = source_[begin + 1];
    const size_t after = begin + 2;
    sign = after < source_.size() && (source_[after] == '-' || source_[after] == '+') ? source_[after] : '\0';
    push_data(before_tag(text, sign, kind != '{'));
    advance(after + (sign != '\0' ? 1 : 0));
    if (kind == '#') {
      return lex_comment();
    }
    return lex_tag(kind == '{');
  }

  void push_data(std::string_view text) {
    if (!text.empty()) {
      push(TokenKind::kData, text);
    }
  }

  Status lex_raw() {
    if (pos_ == source_.size()) {
      return {};  // jinja2 forgives a raw or comment tag that nothing follows
    }
    for (size_t pos = source_.find("{%", pos_); pos != std::string_view::npos; pos = source_.find("{%", pos + 1)) {
      char sign = '\0';
      const size_t end = match_raw(pos, "endraw", true, true, &sign);
      if (end != 0) {
        push_data(before_tag(source_.substr(pos_, pos - pos_), sign, true));
        advance(end);
        return {};
      }
    }
    return syntax_error(line_, "Missing end of raw directive");
  }

  Status lex_comment() {
    if (pos_ == source_.size()) {
      return {};
    }
    size_t pos = source_.find("#}", pos_);
    if (pos == std::string_view::npos) {
      return syntax_error(line_, "Missing end of comment tag");
    }
    if (pos > pos_ && (source_[pos - 1] == '-' || source_[pos - 1] == '+')) {
      --pos;
    }
    advance(match_end(pos, "#}", true, true));
    return {};
  }

  Status lex_tag(bool variable) {
    push(variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    open_.clear();
    while (pos_ < source_.size()) {
      if (open_.empty()) {
        const size_t end = variable ? match_end(pos_, "}}", false, false) : match_end(pos_, "%}", true, true);
        if (end != 0) {
          push(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
          advance(end);
          return {};
        }
      }
      const size_t spaces = skip_spaces(source_, pos_);
      if (spaces > pos_) {
        advance(spaces);
        continue;
      }
      TRY(lex_token());
    }
    return {};  // the parser reports the missing end
  }

  Status lex_token() {
    const char c = source_[pos_];
    uint32_t code_point = 0;
    decode(source_, pos_, &code_point);
    if (is_digit(c)) {
      return lex_number();
    }
    if (is_name_char(code_point)) {
      size_t end = pos_;
      while (end < source_.size()) {
        const size_t length = decode(source_, end, &code_point);
        if (!is_name_char(code_point)) {
          break;
        }
        end += length;
      }
      push(TokenKind::kName, source_.substr(pos_, end - pos_));
      advance(end);
      return {};
    }
    if (c == '\'' || c == '"') {
      return lex_string(c);
    }
    return lex_operator();
  }

  Status lex_string(char quote) {
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) {
      end += source_[end] == '\\' ? 2U : 1U;
    }
    if (end >= source_.size()) {
      return syntax_error(line_, fmt::format("unexpected char '{}' at {}", quote, pos_));
    }
    std::string value;
    const std::string_view message = unescape(source_.substr(pos_ + 1, end - pos_ - 1), &value);
    if (!message.empty()) {
      return syntax_error(line_, message);
    }
    push(TokenKind::kString, value);
    advance(end + 1);
    return {};
  }

  /// End of digits at `pos` with single underscores between them.
  [[nodiscard]] size_t digits_end(size_t pos) const {
    while (pos < source_.size() && (is_digit(source_[pos]) ||
                                    (source_[pos] == '_' && pos + 1 < source_.size() && is_digit(source_[pos + 1])))) {
      ++pos;
    }
    return pos;
  }

  Status lex_number() {
    const size_t whole = digits_end(pos_);
    size_t end = whole;
    const bool after_dot = pos_ > 0 && source_[pos_ - 1] == '.';
    if (!after_dot) {
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
        end = digits_end(end + 1);
      }
      size_t exponent = end;
      if (exponent < source_.size() && (source_[exponent] == 'e' || source_[exponent] == 'E')) {
        ++exponent;
        exponent += exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-') ? 1U : 0U;
        end = exponent < source_.size() && is_digit(source_[exponent]) ? digits_end(exponent) : end;
      }
    }
    if (end > whole) {
      std::string text(source_.substr(pos_, end - pos_));
      text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
      push(TokenKind::kFloat, text);
      const auto parsed = std::from_chars(text.data(), text.data() + text.size(), tokens_.back().real);
      if (parsed.ec != std::errc()) {  // Python: too large is inf, too small is 0
        const size_t e = text.find_first_of("eE");
        tokens_.back().real = e != std::string::npos && text[e + 1] == '-' ? 0.0 : HUGE_VAL;
      }
      advance(end);
      return {};
    }
    return lex_integer();
  }

  Status lex_integer() {
    int base = 10;
    size_t begin = pos_;
    if (source_[pos_] == '0' && pos_ + 2 < source_.size()) {
      const char prefix = static_cast<char>(source_[pos_ + 1] | 0x20);
      base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
      begin += base != 10 ? 2U : 0U;
    }
    const auto belongs = [&](char c) {
      const int digit = is_digit(c) ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : 99;
      return digit < base;
    };
    std::string digits;
    size_t end = begin;
    while (end < source_.size() &&
           (belongs(source_[end]) || (source_[end] == '_' && end + 1 < source_.size() && belongs(source_[end + 1])))) {
      if (source_[end] != '_') {
        digits += source_[end];
      }
      ++end;
      if (base == 10 && digits[0] == '0' && end < source_.size() && is_digit(source_[end]) && source_[end] != '0') {
        break;  // `012` is the integer 0 and then 12
      }
    }
    if (digits.empty()) {  // `0x` without digits: the integer 0 and a name
      digits = "0";
      end = pos_ + 1;
      base = 10;
    }
    push(TokenKind::kInteger, digits);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), tokens_.back().integer, base);
    if (parsed.ec != std::errc()) {
      return syntax_error(line_, fmt::format("integer {} does not fit 64 bits", digits));
    }
    advance(end);
    return {};
  }

  Status lex_operator() {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    std::string_view op = source_.substr(pos_, 2);
    if (std::find(std::begin(kTwo), std::end(kTwo), op) == std::end(kTwo)) {
      op = source_.substr(pos_, 1);
      if (kOne.find(op[0]) == std::string_view::npos) {
        return syntax_error(line_, fmt::format("unexpected char '{}' at {}", op, pos_));
      }
    }
    const char c = op[0];
    if (c == '(' || c == '[' || c == '{') {
      open_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_.empty()) {
        return syntax_error(line_, fmt::format("unexpected '{}'", c));
      }
      if (open_.back() != c) {
        return syntax_error(line_, fmt::format("unexpected '{}', expected '{}'", c, open_.back()));
      }
      open_.pop_back();
    }
    push(TokenKind::kOperator, op);
    advance(pos_ + op.size());
    return {};
  }

  std::string_view source_;
  size_t pos_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<char> open_;  // closing brackets still expected inside the current tag
  std::vector<Token> tokens_;
};

}  // namespace

Status syntax_error(uint32_t line, std::string_view message) {
  return {ErrorCode::kInvalidData, fmt::format("template line {}: {}", line, message)};
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  const std::string text = normalize_newlines(source);
  return Lexer(text).run();
}

}  // namespace tessera::jinja

#include "runtime/grammar/json_rules.h"

#include <algorithm>
#include <fmt/format.h>

#include "runtime/grammar/gbnf_text.h"
#include "runtime/grammar/json_schema.h"
#include "tokenizer/utf8.h"

namespace tessera {
namespace {

constexpr CodeRange kRaw[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}, {0x80, 0xD7FF}, {0xE000, 0x10FFFF}};

// Of names to stay away from; nothing begins with as much of one.
constexpr size_t kMaxNameBytes = 200;

uint32_t code_at(std::string_view text, size_t n) {
  const auto lead = static_cast<uint8_t>(text[0]);
  uint32_t code = n <= 1 ? lead : lead & (0xFFU >> (n + 1));
  for (size_t i = 1; i < n; ++i) {
    code = code << 6 | (static_cast<uint8_t>(text[i]) & 0x3FU);
  }
  return code;
}

// Characters that JSON strings hold as they are, but for these.
CodeRanges raw_without(const CodeRanges& codes) {
  CodeRanges without = codes;
  const CodeRanges raw(std::begin(kRaw), std::end(kRaw));
  const CodeRanges escaped = inverted(raw);
  without.insert(without.end(), escaped.begin(), escaped.end());
  return inverted(normalized(std::move(without)));
}

// What may follow `depth` bytes that all of names[begin, end) begin with, up to the quote. Sorted, without repetitions.
std::string below(const std::vector<std::string>& names, size_t begin, size_t end, size_t depth,
                  std::string_view any_char) {
  const bool is_name = names[begin].size() == depth;
  CodeRanges codes;
  std::string ways;
  for (size_t i = begin + (is_name ? 1 : 0); i < end;) {
    const std::string_view rest = std::string_view(names[i]).substr(depth);
    const size_t n = std::max<size_t>(utf8_valid_bytes(rest), 1);
    size_t last = i;
    while (last < end && std::string_view(names[last]).substr(depth).starts_with(rest.substr(0, n))) {
      ++last;
    }
    const uint32_t code = code_at(rest, n);
    codes.push_back({code, code});
    if (depth + n <= kMaxNameBytes) {
      ways += fmt::format(" | {} {}", gbnf_literal(rest.substr(0, n)), below(names, i, last, depth + n, any_char));
    }
    i = last;
  }
  const std::string other = gbnf_class(raw_without(codes));
  return fmt::format("({}{} {}*{})", is_name ? "" : "\"\" | ", other, any_char, ways);
}

}  // namespace

std::span<const JsonRule> json_rules() {
  // Escapes of surrogates come in pairs: half of one is no character.
  static const std::vector<JsonRule> kRules = {
      {"ws", R"((" " | "\n" " "{0,20} | "\n" "\t"{0,10})?)", {}},
      {"json-char",
       R"([\x20\x21\x23-\x5B\x5D-\x7E\u0080-\U0010FFFF] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] ([0-7] [0-9a-fA-F]{2} | [89abAB] [0-9a-fA-F]{2} "\\u" [dD] [c-fC-F] [0-9a-fA-F]{2}))))",
       {}},
      {"json-string", R"("\"" json-char* "\"")", {"json-char"}},
      {"json-integer", R"("-"? ("0" | [1-9] [0-9]{0,15}))", {}},
      {"json-number", R"("-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?)", {}},
      {"json-value",
       R"(json-object | json-array | json-string | json-number | "true" | "false" | "null")",
       {"json-object", "json-array", "json-string", "json-number"}},
      {"json-object", R"("{" ws (json-pair ("," ws json-pair)* ws)? "}")", {"json-pair", "ws"}},
      {"json-pair", R"(json-string ":" ws json-value)", {"json-string", "json-value", "ws"}},
      {"json-array", R"("[" ws (json-value ("," ws json-value)* ws)? "]")", {"json-value", "ws"}},
      {"date-part",
       R"([0-9]{4} "-" (("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | "1" [0-9] | "2" [0-8]) | ("0" [13-9] | "1" [0-2]) "-" ("29" | "30") | ("0" [13578] | "1" [02]) "-31"))",
       {}},
      {"time-part",
       R"(([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,9})? ("Z" | [-+] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]))",
       {}},
      {"format-date", R"("\"" date-part "\"")", {"date-part"}},
      {"format-time", R"("\"" time-part "\"")", {"time-part"}},
      {"format-date-time", R"("\"" date-part "T" time-part "\"")", {"date-part", "time-part"}},
      {"format-uuid",
       R"("\"" [0-9a-fA-F]{8} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{12} "\"")",
       {}},
      {"host-label", R"([a-zA-Z0-9] ([a-zA-Z0-9] | "-" [a-zA-Z0-9]){0,30})", {}},
      {"host-part", R"(host-label ("." host-label){0,3})", {"host-label"}},
      {"format-hostname", R"("\"" host-part "\"")", {"host-part"}},
      {"format-email",
       R"("\"" [a-zA-Z0-9_+-]{1,32} ("." [a-zA-Z0-9_+-]{1,16}){0,1} "@" host-label ("." host-label){1,3} "\"")",
       {"host-label"}},
      {"ipv4-byte", R"("25" [0-5] | "2" [0-4] [0-9] | "1" [0-9]{2} | [1-9] [0-9] | [0-9])", {}},
      {"format-ipv4", R"("\"" ipv4-byte ("." ipv4-byte){3} "\"")", {"ipv4-byte"}},
      {"format-ipv6", R"("\"" [0-9a-fA-F]{1,4} (":" [0-9a-fA-F]{1,4}){7} "\"")", {}},
      {"format-uri",
       R"("\"" [a-z] [a-z0-9+.-]{0,15} "://" host-part (":" [1-9] [0-9]{0,3})? ("/" [a-zA-Z0-9_.~-]{0,64}){0,12} ("?" [a-zA-Z0-9_.~=&-]{0,200})? ("#" [a-zA-Z0-9_.~-]{0,64})? "\"")",
       {"host-part"}},
  };
  return kRules;
}

std::string other_name(std::vector<std::string> names, std::string_view any_char) {
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  return fmt::format("(\"\\\"\" {} \"\\\"\")", below(names, 0, names.size(), 0, any_char));
}

std::string json_grammar(bool only_objects) {
  std::string text = only_objects ? "root ::= json-object\n" : "root ::= json-value\n";
  for (const JsonRule& rule : json_rules()) {
    if (rule.name == "ws" || rule.name.starts_with("json-")) {
      text += fmt::format("{} ::= {}\n", rule.name, rule.body);
    }
  }
  return text;
}

}  // namespace tessera

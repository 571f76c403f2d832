#pragma once
// The parts of JSON that grammars of schemas are made of. Private to runtime/grammar.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct JsonRule {
  std::string_view name;
  std::string_view body;               // GBNF
  std::vector<std::string_view> uses;  // names of other rules
};

/// ws, json-char, json-string, json-integer, json-number, json-value, format-date and so on; constant.
std::span<const JsonRule> json_rules();

/// A GBNF expression, in parentheses, for a JSON string that is none of these. names: as JSON spells them, without
/// quotes. any_char: the name of the rule for a character.
std::string other_name(std::vector<std::string> names, std::string_view any_char);

}  // namespace tessera

#pragma once
// Lexer of the template language: source text to tokens, whitespace control applied.
//
// Behaves as jinja2 does with trim_blocks and lstrip_blocks on: a newline after a block tag goes, blanks before a block
// tag at the start of a line go, `-` and `+` next to a delimiter strip more or nothing. One trailing newline of the
// source is dropped, `\r\n` and `\r` become `\n`. Linear in the source.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t line = 1;
  std::string text;  // data, name, operator, or the string's value with escapes resolved
  int64_t integer = 0;
  double real = 0;
};

/// The tokens of a template, the last of kind kEnd.
/// Errors: kInvalidData with the line for what jinja2 calls a syntax error.
Result<std::vector<Token>> tokenize(std::string_view source);

/// kInvalidData `template line N: message`.
Status syntax_error(uint32_t line, std::string_view message);

}  // namespace tessera::jinja

#pragma once
// JSON schemas as grammars: every text that the grammar lets through is a document that the schema accepts.
//
// Enforced: type (also lists, and nullable), properties in the schema's order, required, additionalProperties, items,
// prefixItems, minItems, maxItems, enum, const, anyOf, oneOf (alternatives that overlap are not told apart), allOf
// (merged), $ref within the document (also recursive), minLength, maxLength, pattern (pattern_grammar.h), format (date,
// time, date-time, uuid, email, ipv4, ipv6, hostname, uri), minimum, maximum and their exclusive forms, and
// minProperties and maxProperties where counting is not needed.
// The grammar is narrower than the schema where a model gains nothing: blanks only where people put them, numbers of at
// most 16 digits; a prefixItems array has all of its prefix; properties that the schema does not name appear only where
// additionalProperties allows them or where it names none.
//
// Keywords that would limit documents and cannot be enforced (uniqueItems, multipleOf, not, if, patternProperties,
// contains, ...) are errors that name the keyword and its place: engines that drop them silently answer 200 with
// documents that break the schema, which is what users report as a bug (kekzl/imp#1567, sgl-project/sglang#28804,
// #37839, ggml-org/llama.cpp#24097). Annotations (title, default, examples, unknown formats and keywords) are passed
// over, as the specification says.

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera {

inline constexpr size_t kMaxSchemaBytes = 1U << 20;
inline constexpr int kMaxSchemaDepth = 200;  // of brackets in the schema's text, and of schemas in each other

/// GBNF (gbnf.h) of the documents of a schema, as one JSON text. Work is linear in the schema, what allOf merges
/// counted each time. Errors: kInvalidArgument (no JSON, a keyword with a value of the wrong kind, a $ref to nothing,
/// nothing fits) and kUnsupported, both with the place as a JSON pointer and the keyword.
Result<std::string> json_schema_grammar(std::string_view schema);

/// The rules of several schemas for one grammar, which share what is equal in them.
class JsonSchemaRules {
 public:
  JsonSchemaRules();
  ~JsonSchemaRules();
  JsonSchemaRules(const JsonSchemaRules&) = delete;
  JsonSchemaRules& operator=(const JsonSchemaRules&) = delete;

  /// Adds the documents of a schema. pointer: where it stands in the text, as "$ref" has it. Result: a GBNF expression
  /// that can be put into a row. Errors: those of json_schema_grammar(); add nothing more after one.
  Result<std::string> add(std::string_view schema, const std::string& pointer = "#");
  /// Adds any JSON of a kind. Result: the rule's name. REQUIRES: kind is "object", "string" or "value".
  std::string add_any(std::string_view kind);
  /// All rules that the expressions need. None is called root; all names are r or ref with a number, ws, or have a
  /// hyphen.
  [[nodiscard]] std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The GBNF of any JSON document: of an object where only_objects, else of any value.
std::string json_grammar(bool only_objects);

}  // namespace tessera

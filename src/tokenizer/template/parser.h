#pragma once
// Parser of the template language: source text to the tree of ast.h, with jinja2's grammar and precedences.
//
// Understands set, if, for, macro, call, filter, with, raw, print, autoescape, break, continue and Hugging Face's
// generation blocks; tags that reach other files (extends, include, import, block) are refused. Recursive descent,
// bounded by kMaxHeight; linear in the source.

#include <memory>
#include <string_view>

#include "base/status.h"
#include "tokenizer/template/ast.h"

namespace tessera::jinja {

/// Errors: kInvalidData `template line N: …`.
Result<std::shared_ptr<const ParsedTemplate>> parse_template(std::string_view source);

}  // namespace tessera::jinja

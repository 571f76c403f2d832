#pragma once
// A Jinja template, ready to be rendered: the language chat templates are written in, without their meaning.
//
// Follows jinja2 3.1 as Hugging Face configures it for chat templates: immutable sandbox, trim_blocks, lstrip_blocks,
// loop controls, no escaping, generation blocks, its tojson, raise_exception and strftime_now. Known differences:
// ints have 64 bits, `safe` marks nothing, `escape` returns plain text, names of filters and tests are looked up when
// used, upper() and lower() map single code points, and a variable that an enclosing block sets later still has
// the value given from outside when an inner block reads it before (jinja2: undefined). Limits are those of runtime.h.
// Immutable once parsed; many threads may render at once.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tokenizer/template/runtime.h"
#include "tokenizer/template/text.h"
#include "tokenizer/template/value.h"

namespace tessera::jinja {

struct ParsedTemplate;

/// Names and values a template sees. Values belong to the Runtime that made them.
using Variables = std::vector<std::pair<std::string, Value>>;

class Template {
 public:
  /// Errors: kInvalidData `template line N: …`.
  static Result<Template> parse(std::string_view source);

  /// Renders with the variables that `bind` makes in the rendering's Runtime; later ones hide earlier ones.
  /// Errors: those of `bind`; kInvalidArgument: the template raised an error or did what Python refuses (the message
  /// names the line); kUnsupported: a limit, named in the message.
  Result<Text> render(const std::function<Result<Variables>(Runtime&)>& bind, const RuntimeOptions& options) const;

 private:
  explicit Template(std::shared_ptr<const ParsedTemplate> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const ParsedTemplate> parsed_;
};

}  // namespace tessera::jinja

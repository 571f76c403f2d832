#pragma once
// How Python prints values: str(), repr(), '%' formatting, str.format(), and JSON as json.dumps writes it.

#include <string>
#include <string_view>

#include "tokenizer/template/runtime.h"
#include "tokenizer/template/value.h"

namespace tessera::jinja {

/// Python's repr of a float: shortest digits that round-trip.
std::string float_repr(double value);
/// Appends str(value); a string appends itself, an undefined value nothing.
Status append_str(Runtime& runtime, const Value& value, Text& out);
/// Appends repr(value).
Status append_repr(Runtime& runtime, const Value& value, Text& out);
/// str(value) as a Text.
Result<Text> to_text(Runtime& runtime, const Value& value);

/// `format % args`, args being a tuple, a dict, or one value.
Result<Value> percent_format(Runtime& runtime, const Text& format, const Value& args);
/// `format.format(*args, **kwargs)`.
Result<Value> brace_format(Runtime& runtime, const Text& format, const CallArgs& args);

/// One number or text laid out by a format specification `[[fill]align][sign][#][0][width][,][.precision][type]`.
/// Errors: kInvalidArgument for a specification that does not suit the value.
Status append_formatted(Runtime& runtime, const Value& value, std::string_view specification, Text& out);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool multi_line = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

/// Appends json.dumps(value). Errors: kInvalidArgument for a value that JSON has no form for.
Status append_json(Runtime& runtime, const Value& value, const JsonStyle& style, Text& out);
/// Parses JSON text; all values made are `from_user`. Errors: kInvalidArgument when it is not JSON.
Result<Value> parse_json(Runtime& runtime, std::string_view text, bool from_user);

}  // namespace tessera::jinja

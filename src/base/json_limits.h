#pragma once
// What JSON would cost to parse, seen before a parser reserves memory and time for it.

#include <cstddef>
#include <string_view>

#include "base/status.h"

namespace tessera {

struct JsonLimits {
  size_t n_levels = 0;   // brackets in each other
  size_t n_members = 0;  // of one object: a list of members is searched from the front
};

/// Looks at brackets and colons alone; whether the text is JSON is the parser's to say. Linear in the text.
/// Errors: kInvalidArgument, naming the limit and the byte where it was passed.
Status check_json_limits(std::string_view text, const JsonLimits& limits);

}  // namespace tessera

#pragma once
// A value in the place of one that a model file has, as people write it: KEY=TYPE:VALUE. GgufFile::override_value()
// puts it there.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/status.h"

namespace tessera {

struct MetadataOverride {
  std::string key;  // whole; with a dot in front, a key of the file's architecture: ".rope.freq_base"
  std::variant<int64_t, double, bool, std::string> value;
};

/// Reads KEY=TYPE:VALUE. TYPE says what VALUE is: int, a whole number of 64 bits; float, a finite number; bool, true or
/// false; str, any text. Errors: kInvalidArgument, which says what is wrong with the text, but does not cite it whole.
Result<MetadataOverride> parse_override(std::string_view text);

}  // namespace tessera

#pragma once
// Values of a file's metadata as JSON text, for people and for programs that know no GGUF.

#include <cstdint>
#include <limits>
#include <string>

#include "gguf/metadata.h"

namespace tessera {

/// JSON text of a value: numbers (what is not finite: null), booleans, texts (bytes that are not UTF-8 become U+FFFD),
/// and of an array the first max_elements elements. An array inside an array is null.
std::string metadata_json(const MetaValue& value, uint64_t max_elements = std::numeric_limits<uint64_t>::max());

}  // namespace tessera

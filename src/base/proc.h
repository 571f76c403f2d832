#pragma once
// What the system says of itself: the size of its pages, and the small texts of /proc and /sys. These have no size, so
// they are read as streams.

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// Bytes of a page of memory.
uint64_t page_bytes();

/// The whole text; empty when it cannot be read.
std::string proc_text(const std::string& path);

/// The value of the first line `key: value`, without blanks around it; empty when there is none.
std::string_view proc_value(std::string_view text, std::string_view key);

/// The same in bytes, for values that are stated in kB; 0 when there is none.
uint64_t proc_bytes(std::string_view text, std::string_view key);

/// The number that a text begins with; 0 when it begins with none ("max").
uint64_t proc_number(std::string_view text);

}  // namespace tessera

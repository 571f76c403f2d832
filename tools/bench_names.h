#pragma once
// How people call what a file says of itself as a number.

#include <string_view>

namespace tessera {

/// The quantisation that general.file_type stands for, such as "Q4_K - Medium" for "15". Empty: none that is known.
std::string_view file_type_name(std::string_view number);

}  // namespace tessera

#pragma once
// Bytes as text.

#include <cstddef>
#include <span>
#include <string>

namespace tessera {

/// Base64 with padding (RFC 4648).
std::string base64(std::span<const std::byte> bytes);

}  // namespace tessera

#pragma once
// The tokens of single bytes, as both encoders keep them: by byte, -1 where the vocabulary has none.

#include <array>
#include <cstdint>
#include <vector>

namespace tessera {

using ByteTokens = std::array<int32_t, 256>;

/// Bytes without a token, ascending.
[[nodiscard]] inline std::vector<uint8_t> bytes_without_token(const ByteTokens& tokens) {
  std::vector<uint8_t> missing;
  for (size_t byte = 0; byte < tokens.size(); ++byte) {
    if (tokens[byte] < 0) {
      missing.push_back(static_cast<uint8_t>(byte));
    }
  }
  return missing;
}

}  // namespace tessera

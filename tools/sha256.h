#pragma once
// SHA-256 of a stream of bytes (FIPS 180-4), from Debian's libmd. A value: one stream, one thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tessera {

using Sha256Digest = std::array<uint8_t, 32>;

/// 64 lower-case hexadecimal digits.
std::string hex(const Sha256Digest& digest);

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  /// The digest of everything given so far; nothing may be given afterwards.
  Sha256Digest finish();

 private:
  // libmd's SHA2_CTX: 8 words of state, a 64-bit count, a block of 64 bytes. sha256.cc checks that it fits.
  alignas(8) std::array<std::byte, 256> context_;
};

}  // namespace tessera

#pragma once
// XXH64: a fast 64-bit checksum. It finds damage; against an adversary it proves nothing.
// The function is xxHash's (libxxhash), so files can be checked by other programs too.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

/// The checksum of bytes. Different seeds give unrelated functions.
[[nodiscard]] uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed = 0);

}  // namespace tessera

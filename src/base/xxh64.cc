#include "base/xxh64.h"

// The library's code is compiled in here; nothing is linked.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera {

uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH64(bytes.data(), bytes.size(), seed);
}

}  // namespace tessera

#pragma once
// Which tokens may follow: one bit for each of a vocabulary.

#include <cstdint>
#include <vector>

namespace tessera {

struct TokenMask {
  std::vector<uint64_t> bits;  // [n_vocab / 64, rounded up]; those behind n_vocab are 0
  int32_t n_allowed = 0;

  [[nodiscard]] bool allows(int32_t id) const {
    return (bits[static_cast<size_t>(id) / 64] >> (static_cast<size_t>(id) % 64) & 1) != 0;
  }
};

}  // namespace tessera

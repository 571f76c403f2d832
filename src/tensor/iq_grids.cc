#include "tensor/iq_grids.h"

#include <cstddef>

namespace tessera {
namespace {

#include "tensor/iq_grids.inc"

// Rows of signed bytes from codes of `bits` bits an element.
template <typename Row, int bits, std::size_t n_levels, std::size_t n>
constexpr std::array<Row, n> expand(const std::array<int8_t, n_levels>& levels, const std::array<uint16_t, n>& codes) {
  std::array<Row, n> rows{};
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t i = 0; i < sizeof(Row); ++i) {
      const auto level = static_cast<uint8_t>(levels[codes[r] >> (bits * i) & ((1U << bits) - 1)]);
      rows[r] |= static_cast<Row>(level) << (8 * i);
    }
  }
  return rows;
}

}  // namespace

constexpr std::array<uint64_t, 256> kIq2xxsGrid = expand<uint64_t, 2>(kIq2xxsLevels, kIq2xxsCodes);
constexpr std::array<uint64_t, 512> kIq2xsGrid = expand<uint64_t, 2>(kIq2xsLevels, kIq2xsCodes);
constexpr std::array<uint64_t, 1024> kIq2sGrid = expand<uint64_t, 2>(kIq2sLevels, kIq2sCodes);
constexpr std::array<uint32_t, 256> kIq3xxsGrid = expand<uint32_t, 3>(kIq3xxsLevels, kIq3xxsCodes);
constexpr std::array<uint32_t, 512> kIq3sGrid = expand<uint32_t, 3>(kIq3sLevels, kIq3sCodes);
constexpr std::array<uint64_t, 2048> kIq1Grid = expand<uint64_t, 2>(kIq1Levels, kIq1Codes);

}  // namespace tessera

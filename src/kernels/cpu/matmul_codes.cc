#include "kernels/cpu/matmul_codes.h"

namespace tessera {
namespace {

/// code: of an element's value.
template <class Row, size_t n, class Code>
std::array<uint32_t, n> codes_of(const std::array<Row, n>& grid, Code code) {
  std::array<uint32_t, n> table = {};
  for (size_t row = 0; row < n; ++row) {
    for (size_t i = 0; i < sizeof(Row); ++i) {
      const auto value = static_cast<int8_t>(grid[row] >> 8 * i & 0xFFU);
      table[row] |= static_cast<uint32_t>(code(value)) << (i % 4 * 8 + i / 4 * 4);
    }
  }
  return table;
}

int iq2_code(int x) {
  return (x - 8) / 17;
}
int iq3_xxs_code(int x) {
  return (x - 4) / 8;
}
int iq3_s_code(int x) {
  return (x - 1) / 2;
}
int iq1_code(int x) {
  return x + 1;
}

}  // namespace

const std::array<uint32_t, 256> kIq2xxsCodes = codes_of(kIq2xxsGrid, iq2_code);
const std::array<uint32_t, 512> kIq2xsCodes = codes_of(kIq2xsGrid, iq2_code);
const std::array<uint32_t, 1024> kIq2sCodes = codes_of(kIq2sGrid, iq2_code);
const std::array<uint32_t, 256> kIq3xxsCodes = codes_of(kIq3xxsGrid, iq3_xxs_code);
const std::array<uint32_t, 512> kIq3sCodes = codes_of(kIq3sGrid, iq3_s_code);
const std::array<uint32_t, 2048> kIq1Codes = codes_of(kIq1Grid, iq1_code);

}  // namespace tessera

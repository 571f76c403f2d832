#pragma once
// Codebooks of the IQ formats, constants of the file format (docs/gguf-facts.md 1.5). A row holds the values of 8 (or
// 4) consecutive elements as signed bytes, element i in bits [8i, 8i+8), before scale and sign.

#include <array>
#include <bit>
#include <cstdint>

namespace tessera {

extern const std::array<uint64_t, 256> kIq2xxsGrid;  // 8 magnitudes a row
extern const std::array<uint64_t, 512> kIq2xsGrid;   // 8 magnitudes
extern const std::array<uint64_t, 1024> kIq2sGrid;   // 8 magnitudes
extern const std::array<uint32_t, 256> kIq3xxsGrid;  // 4 magnitudes
extern const std::array<uint32_t, 512> kIq3sGrid;    // 4 magnitudes
extern const std::array<uint64_t, 2048> kIq1Grid;    // 8 values -1, 0, 1; for IQ1_S and IQ1_M

/// Values of the 16 codes of IQ4_NL and IQ4_XS.
inline constexpr std::array<int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

/// Doubled values of the 16 codes of a 4-bit float (E2M1): MXFP4, NVFP4.
inline constexpr std::array<int8_t, 16> kFp4Values = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// Signs of 8 elements from their 7-bit index: bit i set means element i is negative. The eighth sign makes the number
/// of minus signs even.
[[nodiscard]] constexpr uint32_t iq_signs(uint32_t index) {
  return index | (static_cast<uint32_t>(std::popcount(index)) & 1U) << 7;
}

}  // namespace tessera

#pragma once
// The codebooks of the IQ formats as the fast products read them: tables of 4-bit codes. Bits 0 - 3 of byte i of an
// entry are element i's code, bits 4 - 7 element i + 4's (IQ3 has only the former). A code is the level of the
// element's magnitude (IQ1: its value + 1, with the next bit left for the sign of its delta). Filled when the program
// starts, by code for any processor.

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/iq_grids.h"

namespace tessera {

extern const std::array<uint32_t, 256> kIq2xxsCodes;  // levels 8, 25, 43, as in the next two
extern const std::array<uint32_t, 512> kIq2xsCodes;
extern const std::array<uint32_t, 1024> kIq2sCodes;
extern const std::array<uint32_t, 256> kIq3xxsCodes;  // levels 4, 12, 20, 28, 36, 44, 52, 62
extern const std::array<uint32_t, 512> kIq3sCodes;    // levels 1, 3 .. 15
extern const std::array<uint32_t, 2048> kIq1Codes;

}  // namespace tessera

#pragma once
// The CPU's kernel tables. `scalar` computes with float32 activations and weights decoded one by one: slow, readable,
// what everything else is measured against. `fast` quantises activations for quantised weights and picks the best
// instruction set the processor has; all instruction sets of `fast` give equal bits and share one weight layout.

#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/kernel_table.h"

namespace tessera {

enum class CpuKernelSet : uint8_t { kScalar, kFast };
/// kPortable: plain C++, runs anywhere and defines the bits of the others.
/// kAvxVnni: AVX2 with the 8-bit dot product.
enum class CpuIsa : uint8_t { kPortable, kAvx2, kAvxVnni, kAvx512Vnni };

/// Instruction sets this processor can run, best last.
std::vector<CpuIsa> cpu_isas();
std::string_view cpu_isa_name(CpuIsa isa);

/// The table of a set for one instruction set. Lives for the whole process.
/// Errors: kUnsupported when this processor lacks the instruction set (names what it has).
Result<const KernelTable*> cpu_kernel_table(CpuKernelSet set, CpuIsa isa);

}  // namespace tessera

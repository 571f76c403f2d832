#pragma once
// The fast product of some rows and some tokens, for kernels that choose both themselves. Defined in matmul_body.h,
// compiled once per instruction set.

#include <cstdint>

#include "kernels/cpu/vec.h"
#include "kernels/ops/matmul.h"

namespace tessera::TESSERA_ISA {

/// A thread's part of a panel.
struct MatmulPart {
  const MatmulPanel& panel;
  int64_t row_begin, row_end;  // row_begin is a multiple of kGroupRows
  int64_t token_begin, token_end;
};

/// Writes y for the part. args: the input; its panels are not looked at.
void matmul_part(const MatmulPart& part, const MatmulArgs& args);

}  // namespace tessera::TESSERA_ISA

#pragma once
// A sequence's share of a micro-batch, as layers with recurrent state see it: rooms that keep the book of sequences and
// kernels that read it must agree on it.

#include <cstdint>

namespace tessera {

/// Rows rows[row_begin .. row_begin + n_rows) of the micro-batch belong to one sequence, in order of position.
struct RecRun {
  int32_t slot = 0;       // of the sequence's state
  int32_t row_begin = 0;  // into the list of rows
  int32_t n_rows = 0;
  int32_t position = 0;  // of the first row; at 0 the state is zero whatever the slot holds
};

}  // namespace tessera

#pragma once
// What a batch's sizes make of a copy.

#include "device/device.h"

namespace tessera {

/// Rows that a copy moves in a batch of these sizes.
[[nodiscard]] inline uint64_t copy_rows(const CopyArgs& copy, const LaunchSizes& sizes) {
  switch (copy.count) {
    case RowCount::kFixed: return copy.rows;
    case RowCount::kTokens: return static_cast<uint64_t>(sizes.n_tokens);
    case RowCount::kOutputs: return static_cast<uint64_t>(sizes.n_outputs);
    case RowCount::kSeqs: return static_cast<uint64_t>(sizes.n_seqs);
  }
  return 0;
}

}  // namespace tessera

#pragma once
// The body of Op::kQuantize, compiled once per instruction set.

#include "device/cpu/cpu_launch.h"
#include "device/device.h"
#include "kernels/cpu/quantize_block.h"

namespace tessera::TESSERA_ISA {

/// Threads share the blocks of all rows, so that one long row also uses all of them.
void quantize(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const QuantizeArgs*>(raw_args);
  const int64_t n_rows = args.per_output ? sizes.n_outputs : sizes.n_tokens;
  const int64_t row_blocks = args.columns / kQ8Block;
  const CpuShare share = cpu_share(*static_cast<const CpuLaunch*>(launch), n_rows * row_blocks, 4);
  for (int64_t at = share.begin; at < share.end;) {
    const int64_t row = at / row_blocks;
    const int64_t block = at % row_blocks;
    const int64_t n = std::min(row_blocks - block, share.end - at);
    quantize_columns(args.x + row * args.x_stride, args.q8, row, args.columns, block * kQ8Block,
                     (block + n) * kQ8Block);
    at += n;
  }
}

}  // namespace tessera::TESSERA_ISA

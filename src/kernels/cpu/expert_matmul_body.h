#pragma once
// expert_matmul of the fast set (kernels/ops/expert_matmul.h), compiled once per instruction set: matmul's products
// over each expert's own rows, so that few tokens read the weights of few experts and many use matmul's tiles for many.

#include "device/device.h"
#include "kernels/cpu/expert_split.h"
#include "kernels/cpu/matmul_formats.h"
#include "kernels/cpu/matmul_part.h"
#include "kernels/ops/quantize.h"

namespace tessera::TESSERA_ISA {

// NOLINTNEXTLINE(misc-definitions-in-headers)
void expert_matmul(void* launch, const void* raw_args, const LaunchSizes& /*sizes*/) {
  const auto& args = *static_cast<const ExpertMatmulArgs*>(raw_args);
  // Reading a byte takes a core about as long as one product in each of 16 rows, or a quarter of one among floats.
  const auto cost = [](const ExpertPanel& panel, int64_t n_tokens) -> int64_t {
    const PackedFormat* format = packed_format(panel.dtype);
    return format != nullptr ? format->group_bytes(panel.columns / kQ8Block) + n_tokens * panel.columns
                             : kGroupRows * static_cast<int64_t>(row_bytes(panel.dtype, panel.columns)) +
                                   4 * n_tokens * panel.columns;
  };
  MatmulArgs input;
  input.x = args.x;
  input.x_stride = args.panels.front().columns;
  input.q8 = args.q8;
  input.q8_columns = args.panels.front().columns;
  share_expert_products(
      args, kGroupRows, *static_cast<const CpuLaunch*>(launch), cost,
      [&](const MatmulPanel& panel, int64_t row_begin, int64_t row_end, int64_t token_begin, int64_t token_end) {
        matmul_part({panel, row_begin, row_end, token_begin, token_end}, input);
      });
}

}  // namespace tessera::TESSERA_ISA

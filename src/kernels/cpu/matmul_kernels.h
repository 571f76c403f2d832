#pragma once
// What the files of the CPU's matmul share. Private to kernels/cpu.

#include <span>

#include "kernels/kernel_table.h"
#include "kernels/ops/matmul.h"

namespace tessera {

/// Rows as GGUF stores them, one after another: packed_bytes and pack of such a WeightLayout.
uint64_t raw_packed_bytes(DType dtype, int64_t rows, int64_t columns);
void pack_raw(DType dtype, int64_t columns, std::span<const std::byte* const> rows, std::byte* dst);

/// Groups of 16 rows (matmul_formats.h): packed_bytes and pack of such a WeightLayout. REQUIRES: packed_format(dtype).
uint64_t packed_bytes(DType dtype, int64_t rows, int64_t columns);
void pack_groups(DType dtype, int64_t columns, std::span<const std::byte* const> rows, std::byte* dst);

/// The scalar set's product: KernelFn over panels of raw rows and float activations.
void matmul_scalar(void* launch, const void* args, const LaunchSizes& sizes);
/// Some rows and tokens of it. args: the input; its panels are not looked at.
void matmul_scalar_part(const MatmulPanel& panel, const MatmulArgs& args, int64_t row_begin, int64_t row_end,
                        int64_t token_begin, int64_t token_end);

}  // namespace tessera

#pragma once
// Micro-batches: how a batch is cut, and what the host puts into the upload block of one. Pure host work.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/sequence_memory.h"
#include "program/lower/lower.h"
#include "runtime/context.h"
#include "runtime/model_state.h"

namespace tessera {

/// Consecutive pieces within the shape's limits. The bounds follow from the batch and the shape alone, never from the
/// placement.
std::vector<std::span<const BatchToken>> cut_batch(std::span<const BatchToken> batch, const BatchShape& shape);

/// Writes the tokens' rows of the embedding table, read from the model file, times the program's scale. Errors: kIo
/// when they cannot be read; then `block` holds anything.
Status fill_embeddings(const ModelState& model, const HostInputLayout& layout, std::span<const BatchToken> tokens,
                       std::byte* block);

/// How many tokens of a micro-batch want something.
struct WantedRows {
  int32_t n_logits = 0;
  int32_t n_embeddings = 0;
};
WantedRows count_wanted(std::span<const BatchToken> tokens);

/// Writes positions, rows, slots, page tables and runs of a prepared micro-batch.
void fill_inputs(const HostInputLayout& layout, const BatchShape& shape, std::span<const BatchToken> tokens,
                 const MemoryBatch& memory, std::byte* block);

}  // namespace tessera

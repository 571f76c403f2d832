#pragma once
// Micro-batches: how a batch is cut, and what the host puts into the upload block of one. Pure host work.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/kv_cache.h"
#include "program/lower/lower.h"
#include "runtime/context.h"
#include "runtime/model_state.h"

namespace tessera {

/// Consecutive pieces within the shape's limits. The bounds follow from the batch and the shape alone, never from the
/// placement.
std::vector<std::span<const BatchToken>> cut_batch(std::span<const BatchToken> batch, const BatchShape& shape);

/// Writes embeddings, positions, rows, slots and page tables of a prepared micro-batch. Returns the number of outputs.
/// Errors: kIo when the embedding rows cannot be read from the model file; then `block` holds anything.
Result<int32_t> fill_inputs(const ModelState& model, const HostInputLayout& layout, const BatchShape& shape,
                            std::span<const BatchToken> tokens, const KvBatch& batch, std::byte* block);

}  // namespace tessera

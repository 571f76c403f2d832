#pragma once
// What a context needs on each device, counted by the code that later carves it.

#include <cstdint>
#include <vector>

#include "kernels/ops/rec_layout.h"
#include "runtime/device_need.h"
#include "runtime/model_state.h"

namespace tessera {

/// Sizes that follow from a model and context options.
struct ContextSizes {
  BatchShape shape;
  std::vector<int64_t> class_pages;  // by KV class: pages in the pool
  int32_t n_snapshots = 0;           // of recurrent state
};

/// The options with n_ctx = 0 replaced by the model's training context, and kAsOne by n_ctx. Errors: kInvalidData when
/// the file states none.
Result<ContextOptions> with_context_size(const ModelState& model, ContextOptions options);

/// Checks options against the model. REQUIRES: options are with_context_size(). Errors: kInvalidArgument naming the
/// flag.
Result<ContextSizes> context_sizes(const ModelState& model, const ContextOptions& options);

/// Bytes of each kv(layer, cut): index layer * n_cuts + cut; 0 where the cut is empty.
std::vector<uint64_t> kv_tile_bytes(const ModelState& model, const ContextOptions& options, const ContextSizes& sizes);

/// Whether a layer has recurrent state.
bool has_recurrent_state(const ModelState& model);

/// How kernels see a layer's recurrent state.
RecFormat rec_format(const RecLayerSpec& layer);

/// Bytes of one sequence's slot in each rec(layer, cut), indexed the same; 0 where the layer has no recurrent state.
std::vector<uint64_t> rec_slot_bytes(const ModelState& model);

/// Needs by device of the model's weights and one context. Errors: kUnsupported (no kernel for a cache type).
Result<std::vector<DeviceNeed>> memory_needs(const ModelState& model, const ContextOptions& options,
                                             const ContextSizes& sizes);

/// The same without scratch, which is what takes time to count.
std::vector<DeviceNeed> needs_without_scratch(const ModelState& model, const ContextOptions& options,
                                              const ContextSizes& sizes);

/// kDoesNotFit with one clause per device that lacks bytes: needed (weights, KV, recurrent state, scratch) and
/// budget.
Status check_fit(const ModelState& model, const std::vector<DeviceNeed>& needs);

/// Where each kv or rec tile (index and bytes as kv_tile_bytes) lies in its device's range for them under a placement,
/// one after another on the unit grid.
Layout layout_state(const ModelState& model, const Placement& placement, const std::vector<uint64_t>& tile_bytes);

/// The device of the state with index layer * n_cuts + cut: it follows attn(layer, cut). REQUIRES: the cut is not
/// empty.
size_t home_of_state(const ModelState& model, size_t index);

}  // namespace tessera

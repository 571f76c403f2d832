#include "runtime/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

#include "base/checked.h"
#include "base/units.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/kv_layout.h"
#include "kernels/ops/rec_layout.h"
#include "memory/kv_cache.h"

namespace tessera {
namespace {

// Logits of one micro-batch are kept in at most this many bytes; a batch that wants more is cut into smaller ones.
constexpr int64_t kLogitsBytesMax = 32 << 20;

// As many as asked for and as their bytes allow; 0 for a model without recurrent state.
int32_t count_snapshots(const ModelState& model, const ContextOptions& options) {
  const std::vector<uint64_t> slots = rec_slot_bytes(model);
  const uint64_t bytes = std::accumulate(slots.begin(), slots.end(), uint64_t{0});
  if (bytes == 0) {
    return 0;
  }
  return static_cast<int32_t>(std::min(static_cast<uint64_t>(options.n_snapshots), options.snapshot_bytes / bytes));
}

// The attention tile that the state with this index follows. REQUIRES: the cut is not empty.
size_t attn_tile(const ModelState& model, size_t index) {
  const auto n_cuts = static_cast<size_t>(model.tiles.n_cuts);
  return static_cast<size_t>(
      model.tiles.find(TileKind::kAttn, static_cast<int32_t>(index / n_cuts), static_cast<int>(index % n_cuts)));
}

Status out_of_range(const char* flag, int64_t found, int64_t least, int64_t most) {
  return {ErrorCode::kInvalidArgument, fmt::format("{} is {}; it must be {} to {}", flag, found, least, most)};
}

}  // namespace

Result<ContextOptions> with_context_size(const ModelState& model, ContextOptions options) {
  if (options.n_ctx == 0) {
    options.n_ctx = model.definition.info.n_ctx_train;
    if (options.n_ctx == 0) {
      return Status(ErrorCode::kInvalidData,
                    fmt::format("{}: the file states no context length; give --ctx-size", model.file->path()));
    }
  }
  if (options.n_kv_tokens == ContextOptions::kAsOne) {
    options.n_kv_tokens = options.n_ctx;
  }
  return options;
}

Result<ContextSizes> context_sizes(const ModelState& model, const ContextOptions& options) {
  if (options.n_ctx < 1 || options.n_ctx > kMaxContext) {
    return out_of_range("--ctx-size", options.n_ctx, 1, kMaxContext);
  }
  if (options.n_batch < 1 || options.n_batch > kMaxContext) {
    return out_of_range("--batch-size", options.n_batch, 1, kMaxContext);
  }
  if (options.n_ubatch < 1 || options.n_ubatch > kMaxUbatch) {
    return out_of_range("--ubatch-size", options.n_ubatch, 1, kMaxUbatch);
  }
  if (options.n_seq_max < 1 || options.n_seq_max > kMaxSequences) {
    return out_of_range("the number of sequences", options.n_seq_max, 1, kMaxSequences);
  }
  if (options.n_snapshots < 0 || options.n_snapshots > kMaxSnapshots) {
    return out_of_range("--ctx-checkpoints", options.n_snapshots, 0, kMaxSnapshots);
  }
  if (options.n_kv_tokens != 0 &&
      (options.n_kv_tokens < options.n_ctx || options.n_kv_tokens > kMaxContext * kMaxSequences)) {
    return out_of_range("the number of positions over all sequences", options.n_kv_tokens, options.n_ctx,
                        kMaxContext * kMaxSequences);
  }
  for (const KvLayerSpec& layer : model.definition.program.kv_layers) {
    if (std::max(layer.k_dim, layer.v_dim) > kAttentionMaxDim) {
      return Status(ErrorCode::kUnsupported, fmt::format("heads of {} elements; attention takes at most {}",
                                                         std::max(layer.k_dim, layer.v_dim), kAttentionMaxDim));
    }
    for (const auto& [type, dim, flag] : {std::tuple(options.k_type, layer.k_dim, "--cache-type-k"),
                                          std::tuple(options.v_type, layer.v_dim, "--cache-type-v")}) {
      if (dim % dtype_info(type).block_elems != 0) {
        return Status(ErrorCode::kUnsupported,
                      fmt::format("{} {} stores blocks of {}, but a head of this model has {} elements; use f16 or f32",
                                  flag, dtype_name(type), dtype_info(type).block_elems, dim));
      }
    }
  }
  for (const RecLayerSpec& layer : model.definition.program.rec_layers) {
    if (layer.k_dim > kDeltaMaxDim || layer.n_taps > kConvMaxTaps) {
      return Status(ErrorCode::kUnsupported,
                    fmt::format("recurrent heads of {} elements behind {} convolution taps; kernels take at most {} "
                                "and {}",
                                layer.k_dim, layer.n_taps, kDeltaMaxDim, kConvMaxTaps));
    }
  }
  ContextSizes sizes;
  sizes.n_snapshots = count_snapshots(model, options);
  sizes.shape.n_tokens = std::min(options.n_ubatch, options.n_batch);
  sizes.shape.embeddings = options.embeddings;
  const int64_t logits_row = model.definition.info.n_vocab * static_cast<int64_t>(sizeof(float));
  sizes.shape.n_outputs = std::clamp(kLogitsBytesMax / logits_row, int64_t{1}, sizes.shape.n_tokens);
  sizes.shape.n_seqs = std::min<int64_t>(options.n_seq_max, sizes.shape.n_tokens);
  const auto pages = [](int64_t positions) {
    return static_cast<int64_t>(div_up(static_cast<uint64_t>(positions), static_cast<uint64_t>(kPageTokens)));
  };
  sizes.shape.row_pages = pages(options.n_ctx);
  for (const int64_t window : model.kv_classes.windows) {
    // A window class keeps what the window sees, one micro-batch, and the pages that both ends touch partly.
    const int64_t visible =
        window == 0 ? options.n_ctx : std::min(options.n_ctx, window + sizes.shape.n_tokens + 2 * kPageTokens);
    // Every sequence has its last page to itself, also where all share the pages.
    const int64_t n_shared = pages(options.n_kv_tokens) + options.n_seq_max - 1;
    const int64_t n_pages = window == 0 && options.n_kv_tokens > 0
                                ? std::min(n_shared, pages(visible) * options.n_seq_max)
                                : pages(visible) * options.n_seq_max;
    if (n_pages > kMaxPages) {
      return Status(
          ErrorCode::kInvalidArgument,
          fmt::format("{} sequences of {} tokens need {} cache pages, {} are possible; lower --ctx-size or their "
                      "number",
                      options.n_seq_max, options.n_ctx, n_pages, kMaxPages));
    }
    sizes.class_pages.push_back(n_pages);
  }
  return sizes;
}

bool has_recurrent_state(const ModelState& model) {
  return std::ranges::any_of(model.definition.program.rec_layers,
                             [](const RecLayerSpec& layer) { return layer.n_key_heads > 0; });
}

RecFormat rec_format(const RecLayerSpec& layer) {
  return {layer.n_key_heads, layer.n_rep, layer.k_dim, layer.v_dim, layer.n_taps, layer.tiled};
}

std::vector<uint64_t> rec_slot_bytes(const ModelState& model) {
  const auto& layers = model.definition.program.rec_layers;
  const auto n_cuts = static_cast<size_t>(model.tiles.n_cuts);
  std::vector<uint64_t> bytes(layers.size() * n_cuts, 0);
  for (size_t l = 0; l < layers.size(); ++l) {
    const RecLayerSpec& spec = layers[l];
    const RecFormat format = rec_format(spec);
    for (size_t c = 0; c < n_cuts && spec.n_key_heads > 0; ++c) {
      const int64_t n_groups = model.tiles.attn_cuts[l].groups(static_cast<int>(c)).size();
      bytes[l * n_cuts + c] = n_groups == 0 ? 0 : static_cast<uint64_t>(tessera::rec_slot_bytes(format, n_groups));
    }
  }
  return bytes;
}

std::vector<uint64_t> kv_tile_bytes(const ModelState& model, const ContextOptions& options, const ContextSizes& sizes) {
  const int n_cuts = model.tiles.n_cuts;
  const auto& layers = model.definition.program.kv_layers;
  std::vector<uint64_t> bytes(layers.size() * static_cast<size_t>(n_cuts), 0);
  for (size_t l = 0; l < layers.size(); ++l) {
    const KvFormat format{options.k_type, options.v_type, layers[l].k_dim, layers[l].v_dim};
    if (model.kv_classes.of_layer[l] < 0) {
      continue;
    }
    const int64_t n_pages = sizes.class_pages[static_cast<size_t>(model.kv_classes.of_layer[l])];
    for (int c = 0; c < n_cuts; ++c) {
      const int64_t n_heads = model.tiles.attn_cuts[l].groups(c).size();
      bytes[l * static_cast<size_t>(n_cuts) + static_cast<size_t>(c)] =
          static_cast<uint64_t>(kv_page_bytes(format, n_heads) * n_pages);
    }
  }
  return bytes;
}

Layout layout_state(const ModelState& model, const Placement& placement, const std::vector<uint64_t>& tile_bytes) {
  Layout layout;
  layout.home.assign(tile_bytes.size(), -1);
  layout.offset.assign(tile_bytes.size(), 0);
  layout.region_bytes.assign(model.devices.size(), 0);
  for (size_t i = 0; i < tile_bytes.size(); ++i) {
    if (tile_bytes[i] > 0) {
      layout.home[i] = placement.home[attn_tile(model, i)];
      const auto device = static_cast<size_t>(layout.home[i]);
      layout.offset[i] = layout.region_bytes[device];
      layout.region_bytes[device] += round_up(tile_bytes[i], model.devices[device].info().unit_bytes);
    }
  }
  return layout;
}

size_t home_of_state(const ModelState& model, size_t index) {
  return static_cast<size_t>(model.placement.home[attn_tile(model, index)]);
}

namespace {

Layout layout_rec(const ModelState& model, const ContextOptions& options) {
  std::vector<uint64_t> bytes = rec_slot_bytes(model);
  for (uint64_t& slots : bytes) {
    slots *= static_cast<uint64_t>(options.n_seq_max);
  }
  return layout_state(model, model.placement, bytes);
}

}  // namespace

std::vector<DeviceNeed> needs_without_scratch(const ModelState& model, const ContextOptions& options,
                                              const ContextSizes& sizes) {
  const Layout kv = layout_state(model, model.placement, kv_tile_bytes(model, options, sizes));
  const Layout rec = layout_rec(model, options);
  std::vector<DeviceNeed> needs(model.devices.size());
  for (size_t d = 0; d < needs.size(); ++d) {
    needs[d].weight_bytes = model.weights[d].bytes;
    needs[d].kv_bytes = kv.region_bytes[d];
    needs[d].rec_bytes = rec.region_bytes[d];
  }
  return needs;
}

Result<std::vector<DeviceNeed>> memory_needs(const ModelState& model, const ContextOptions& options,
                                             const ContextSizes& sizes) {
  LowerInput input = model.lower_input(model.placement);
  input.k_type = options.k_type;
  input.v_type = options.v_type;
  input.shape = sizes.shape;
  const auto n_cuts = static_cast<size_t>(model.tiles.n_cuts);
  input.kv_bases.assign(model.definition.program.kv_layers.size() * n_cuts, nullptr);
  input.rec_bases.assign(model.definition.program.rec_layers.size() * n_cuts, nullptr);
  input.count_only = true;
  ASSIGN_OR_RETURN(const Lowered lowered, lower(input));
  std::vector<DeviceNeed> needs = needs_without_scratch(model, options, sizes);
  for (size_t d = 0; d < needs.size(); ++d) {
    needs[d].scratch_bytes = lowered.scratch_bytes[d];
  }
  return needs;
}

namespace {

// Whether these shares would place the model otherwise than those in force.
bool changes(const ModelState& model, const Shares& shares) {
  const Shares now{model.request.tensor_split};
  const auto parts = [&](const Shares& of) {
    return rounded_shares(model.tiles, SplitMode::kLayer, of, model.n_devices());
  };
  constexpr double kSame = 0.005;
  bool differs = false;
  for (int d = 0; d < model.n_devices(); ++d) {
    differs = differs || std::abs(now.of(d, model.n_devices()) - shares.of(d, model.n_devices())) > kSame;
  }
  return differs && (model.placement.made_by != SplitMode::kLayer || parts(now) != parts(shares));
}

// Shares that follow the budgets, where those are enough in all and others than now; else what else helps.
std::string advice(const ModelState& model, const std::vector<DeviceNeed>& needs) {
  uint64_t needed = 0;
  uint64_t budget = 0;
  Shares shares;
  for (size_t d = 0; d < needs.size(); ++d) {
    needed += needs[d].total();
    budget += model.devices[d].budget_bytes();
    shares.parts.push_back(std::round(mib(model.devices[d].budget_bytes())));
  }
  if (needs.size() > 1 && needed < budget) {
    return model.placement.made_by != SplitMode::kNone && changes(model, shares)
               ? fmt::format("Try --tensor-split {}, or lower --ctx-size or --ubatch-size",
                             fmt::join(shares.parts, ","))
               : "Try --fit on, another --split-mode, or lower --ctx-size or --ubatch-size";
  }
  return "Lower --ctx-size or --ubatch-size, raise --device-memory, or add a --device";
}

}  // namespace

Status check_fit(const ModelState& model, const std::vector<DeviceNeed>& needs) {
  std::string lacking;
  for (size_t d = 0; d < needs.size(); ++d) {
    const Device& device = model.devices[d];
    // What is in use already belongs to these weights once they are loaded, or to other contexts.
    const uint64_t own = model.weights[d].range == nullptr ? 0 : model.weights[d].range->committed_bytes();
    const uint64_t used = device.used_bytes() - std::min(device.used_bytes(), own);
    if (used + needs[d].total() > device.budget_bytes()) {
      const std::string state =
          needs[d].rec_bytes == 0 ? "" : fmt::format("recurrent state {:.1f}, ", mib(needs[d].rec_bytes));
      lacking += fmt::format("{}{} needs {:.1f} MiB (weights {:.1f}, KV cache {:.1f}, {}scratch {:.1f}) and has {:.1f}",
                             lacking.empty() ? "" : "; ", device.info().name, mib(needs[d].total()),
                             mib(needs[d].weight_bytes), mib(needs[d].kv_bytes), state, mib(needs[d].scratch_bytes),
                             mib(device.budget_bytes() - std::min(used, device.budget_bytes())));
    }
  }
  if (lacking.empty()) {
    return {};
  }
  return {ErrorCode::kDoesNotFit, fmt::format("the {} placement does not fit: {}. {}",
                                              split_mode_name(model.placement.made_by), lacking, advice(model, needs))};
}

}  // namespace tessera

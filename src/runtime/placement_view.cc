#include "runtime/placement_view.h"

#include <algorithm>

#include "runtime/context_memory.h"
#include "runtime/memory_plan.h"
#include "runtime/model_state.h"
#include "runtime/outline.h"

namespace tessera {
namespace {

void add_replicas(const ModelState& model, std::vector<PlacedPiece>& pieces) {
  for (size_t d = 0; d < model.weights.size(); ++d) {
    if (model.weights[d].bytes > 0) {
      pieces.push_back({"replica", -1, 0, -1, static_cast<int32_t>(d), model.weights[d].tiles_offset, {}});
    }
  }
}

void add_tiles(const ModelState& model, std::vector<PlacedPiece>& pieces) {
  for (size_t t = 0; t < model.tiles.tiles.size(); ++t) {
    const Tile& tile = model.tiles.tiles[t];
    const int32_t home = model.placement.home[t];
    const uint64_t bytes = model.weights[static_cast<size_t>(home)].tile_layouts[t].bytes;
    pieces.push_back({tile_kind_name(tile.kind), tile.layer, tile.cut, tile.expert, home, bytes, {}});
  }
}

// Contexts of one model have their states in the same places: one piece stands for all.
void add_state(const ModelState& model, std::string_view kind, const StateRanges& (*ranges)(const ContextMemory&),
               std::vector<PlacedPiece>& pieces) {
  const auto n_cuts = static_cast<size_t>(model.tiles.n_cuts);
  std::vector<uint64_t> bytes;
  for (const ContextMemory* context : model.contexts) {
    const std::vector<uint64_t>& tiles = ranges(*context).tile_bytes();
    bytes.resize(std::max(bytes.size(), tiles.size()));
    for (size_t i = 0; i < tiles.size(); ++i) {
      bytes[i] += tiles[i];
    }
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > 0) {
      pieces.push_back({kind,
                        static_cast<int32_t>(i / n_cuts),
                        static_cast<int32_t>(i % n_cuts),
                        -1,
                        static_cast<int32_t>(home_of_state(model, i)),
                        bytes[i],
                        {}});
    }
  }
}

void add_file_tensors(const ModelState& model, std::vector<PlacedPiece>& pieces) {
  for (const TensorSpec& tensor : model.definition.table.tensors) {
    if (tensor.tile == TileKind::kHost && tensor.source >= 0) {
      const TensorInfo& info = model.file->tensors()[static_cast<size_t>(tensor.source)];
      pieces.push_back({tile_kind_name(tensor.tile), tensor.layer, 0, -1, -1, info.n_bytes, tensor.name});
    }
  }
}

}  // namespace

Result<PlacementView> placement_view(const Model& model) {
  const ModelState& state = *model.state();
  if (state.loop == nullptr) {
    return Status(ErrorCode::kInvalidArgument, "the model was opened for its vocabulary only; it lives nowhere");
  }
  PlacementView view;
  TRY(state.loop->run([&]() -> Status {
    view.request = state.request;
    view.version = state.placement.version;
    view.n_cuts = state.tiles.n_cuts;
    if (state.request.homes.empty()) {
      const Shares asked{state.request.tensor_split};
      view.shares = rounded_shares(state.tiles, state.placement.made_by, asked, state.n_devices());
      view.shares_note = rounding_note(state, state.placement.made_by, asked);
    }
    view.devices = state.device_use();
    add_replicas(state, view.pieces);
    add_tiles(state, view.pieces);
    add_state(state, "kv", [](const ContextMemory& c) -> const StateRanges& { return c.kv_ranges(); }, view.pieces);
    add_state(state, "rec", [](const ContextMemory& c) -> const StateRanges& { return c.rec_ranges(); }, view.pieces);
    add_file_tensors(state, view.pieces);
    return {};
  }));
  return view;
}

}  // namespace tessera

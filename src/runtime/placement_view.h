#pragma once
// Where every byte of a model is at one moment, for people: its devices, what lies on them, and what is read from the
// file. A copy; it does not change with the model.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/engine.h"

namespace tessera {

/// Something with a home. Tiles: "attn", "ffn", "head", "expert". State of all contexts that follows attn(layer, cut):
/// "kv", "rec". "replica": the small tensors that a device holds all of. "host": a tensor whose rows are read from the
/// model file as tokens need them.
struct PlacedPiece {
  std::string_view kind;
  int32_t layer = -1;  // -1: none
  int32_t cut = 0;
  int32_t expert = -1;  // -1: none
  int32_t device = -1;  // index into PlacementView::devices; -1: the file
  uint64_t bytes = 0;
  std::string tensor;  // "host" only
};

struct PlacementView {
  PlacementRequest request;
  uint64_t version = 0;
  int n_cuts = 1;
  std::vector<double> shares;  // by device: what came of those asked for; none for the general form
  std::string shares_note;     // how that differs (rounding_note() of outline.h); empty: it does not
  std::vector<DeviceUse> devices;
  std::vector<PlacedPiece> pieces;
};

/// Waits for the model's loop thread. Errors: kInvalidArgument when only the vocabulary was loaded; kCancelled while
/// the model goes away.
Result<PlacementView> placement_view(const Model& model);

}  // namespace tessera

#pragma once
// Homes that people fix: which tiles live where --cpu-moe, --n-cpu-moe and --override-tensor say instead of where the
// split mode would put them. Pure but for the regular expressions.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "device/registry.h"
#include "placement/tile.h"
#include "runtime/engine.h"

namespace tessera {

/// By tile: a device, or -1 where nobody said. Rules of options.override_tensor are tried in their order, the first
/// that finds a tile's tensors decides; then options.n_cpu_moe. Errors: kInvalidArgument, naming the flag: no `=`, an
/// unknown device, a broken expression, one that finds no tensor that lives in a tile; kUnsupported when one finds some
/// of a tile's tensors and not the others, which cannot part.
Result<std::vector<int32_t>> fixed_homes(const ModelOptions& options, const TensorTable& table, const TileSet& tiles,
                                         const DeviceSet& devices);

}  // namespace tessera

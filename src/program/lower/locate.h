#pragma once
// Where every op runs: the one rule of docs/design.md, "Program and lowering", applied to a program and a placement.
//
// A product runs where its weight tile lives; append and attention where the kv tile lives (kv(l, c) follows attn(l,
// c)), so a cut or partial value lives, cut by cut, with the tiles of its axis. An op without an anchor runs on every
// device that uses its result; embedding rows are read by the host and sent to those. No split mode is consulted: any
// map from tile to device is legal. The residual stream is the exception that keeps this from reaching back to the
// first layer: a reduce, and a sum that a reduce feeds, run only on devices that hold the reduce's partials; a user
// elsewhere gets a copy. Routing, a discrete decision, is made on one device and copied.

#include <cstdint>
#include <vector>

#include "placement/placement.h"
#include "program/build/program.h"
#include "program/lower/cut_tree.h"

namespace tessera {

/// A set of devices, bit d for device d.
using DeviceMask = uint32_t;
/// Most devices that one model uses together, which are all that --device may name.
inline constexpr int kMaxMaskDevices = 16;

/// One whole value sent from a device that computed it to one that did not.
struct ValueCopy {
  int32_t from = 0;
  int32_t to = 0;
};

struct ValueLocation {
  DeviceMask runs = 0;            // whole values: devices on which the producer runs
  std::vector<ValueCopy> copies;  // whole values: made right after it ran
};

struct Locations {
  std::vector<ValueLocation> values;  // by ValueId
};

/// Cuts of an axis that a device holds, and all non-empty ones.
CutMask held_cuts(const TileSet& tiles, const Placement& placement, CutAxis axis, int32_t layer, int device);
CutMask nonempty_cuts(const TileSet& tiles, CutAxis axis, int32_t layer);
/// Devices that hold a cut of the axis.
DeviceMask devices_of_axis(const TileSet& tiles, const Placement& placement, CutAxis axis, int32_t layer);

/// with_embeddings: somebody wants them. They come from the first device that has the residual stream anyway.
Locations locate(const Program& program, const TileSet& tiles, const Placement& placement,
                 bool with_embeddings = false);

}  // namespace tessera

#pragma once
// Placements: which device each tile lives on, and where in its tile region (one contiguous range per device).
//
// A Placement is an immutable, versioned map. Split modes are nothing but generators of placements; any map is legal,
// and nothing below this file knows a split mode. Pure: devices are indices 0 .. n_devices - 1 in the order of
// --device.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "placement/tile.h"

namespace tessera {

enum class SplitMode : uint8_t { kNone, kLayer, kTensor };

std::string_view split_mode_name(SplitMode mode);

/// Shares of the devices, as --tensor-split gives them. Scaled by their sum; empty: even.
struct Shares {
  std::vector<double> parts;

  /// Share of a device in [0, 1]. REQUIRES: parts is empty or has n_devices entries with a positive sum.
  [[nodiscard]] double of(int device, int n_devices) const;
};

/// Checks shares against the devices. Errors: kInvalidArgument (count, negative, all zero), naming the flag.
Status check_shares(const Shares& shares, int n_devices, std::string_view flag = "--tensor-split");

/// Number of cuts for these devices, 1 .. kMaxCuts: `requested` if positive (at most kMaxCuts), else the smallest
/// number that gives every device with a share at least one cut and represents the shares (even ones: the number of
/// devices), else kMaxCuts: with more devices than cuts some hold none of a layer.
int choose_n_cuts(const Shares& shares, int n_devices, int requested);

/// How many of n_cuts each device gets under the tensor generator: largest remainders, ties to the lower device; a zero
/// share gets none.
std::vector<int> cuts_per_device(const Shares& shares, int n_devices, int n_cuts);

struct Placement {
  uint64_t version = 0;
  SplitMode made_by = SplitMode::kNone;  // for people only
  std::vector<int32_t> home;             // by tile: device
  std::vector<int32_t> worker;           // by tile: device that computes with it; empty: its home does
  std::vector<uint64_t> offset;          // by tile: bytes from the start of its device's tile region, on the unit grid
  std::vector<uint64_t> tile_region_bytes;  // by device

  /// The device that computes with a tile. Where that is another than its home, the tile is streamed there when needed
  /// (experts only).
  [[nodiscard]] int32_t works_on(size_t tile) const { return worker.empty() ? home[tile] : worker[tile]; }
  /// Whether a device holds a tile or computes with one.
  [[nodiscard]] bool uses(int device) const {
    return tile_region_bytes[static_cast<size_t>(device)] > 0 || std::ranges::find(worker, device) != worker.end();
  }
};

/// What placing tiles needs to know of the devices.
struct PlacementTarget {
  int n_devices = 1;
  /// Bytes of a tile in the layout of a device's kernel class.
  std::function<uint64_t(const Tile& tile, int device)> tile_bytes;
  /// Grid on which tiles start on a device.
  std::function<uint64_t(int device)> unit_bytes;
  /// By tile: a device that the generator's choice yields to, or -1. Empty: none.
  std::vector<int32_t> fixed_home;
  /// Experts with a fixed home elsewhere are computed where the generator put them.
  bool streams_experts = false;
};

/// Gives tiles with homes their offsets, one after another. The head comes last, its cuts in falling order: between
/// layer and tensor all but its last cut leave the last device or come to it, and what lies at the end leaves no hole.
/// REQUIRES: placement.home has a device for every tile.
void lay_out(const TileSet& tiles, const PlacementTarget& target, Placement& placement);

/// The placement of a split mode: everything on the first device with a share (none); whole layers in order, each
/// device its share of their number, with the head on the last (layer); the cuts of every layer divided over the
/// devices (tensor). An expert goes with its cut. REQUIRES: check_shares() passed.
Placement make_placement(const TileSet& tiles, SplitMode mode, const Shares& shares, const PlacementTarget& target,
                         uint64_t version);

/// Where things with a home lie on their devices: tiles, or the states that follow them. Sizes are whole units.
struct Layout {
  std::vector<int32_t> home;           // by thing: device; -1: it is not there
  std::vector<uint64_t> offset;        // by thing: bytes from the start of its device's region
  std::vector<uint64_t> region_bytes;  // by device
};

/// `wanted` with the same homes and other offsets, so that a transition from `current` moves few bytes, and moves them
/// well. On every device: what has its home there already stays where it is, unless it lies behind the end of wanted's
/// region; the others take the places of things of their size that go. What has none takes the smallest gap that holds
/// it, before the others where that fits: these then come to new room, which saves staging. Where all that would waste
/// more than a sixteenth of the region in gaps, or make it larger than it may be, more is laid anew, from the end. No
/// region gets larger than the larger of wanted's and current's.
///
/// Among things of one size that move, each goes as far as possible to where the next one is now, in few long chains:
/// where devices exchange things one for one, nearest gaps would make many short cycles, and every cycle costs a copy
/// through staging. There are up to about two chains for each size and link, so that all links have work.
/// bytes(thing, device): what it takes there. REQUIRES: nothing overlaps in either map.
Layout keep_offsets(const Layout& wanted, const Layout& current,
                    const std::function<uint64_t(size_t thing, int device)>& bytes);

/// A part of its region that keep_offsets() may waste in gaps, so that less is copied: a sixteenth.
inline constexpr uint64_t kWasteParts = 16;

/// Where a placement has its tiles; and the same placement with them elsewhere.
Layout layout_of(const Placement& placement);
Placement with_layout(Placement placement, Layout layout);
/// What a tile takes on a device, in whole units of it. Refers to both.
std::function<uint64_t(size_t tile, int device)> whole_tile_bytes(const TileSet& tiles, const PlacementTarget& target);

/// keep_offsets() for tiles. REQUIRES: both are placements of `tiles`.
Placement keep_places(const TileSet& tiles, const Placement& wanted, const Placement& current,
                      const PlacementTarget& target);

/// The part of the model that each device gets of the shares asked for: of the layers under layer, of every tensor
/// under tensor, in what layers and cuts express.
std::vector<double> rounded_shares(const TileSet& tiles, SplitMode mode, const Shares& shares, int n_devices);

}  // namespace tessera

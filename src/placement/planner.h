#pragma once
// The planner of transitions: in which pieces and in what order the bytes of a model go from one map to another, in
// place. Pure: it runs without any device, and the same request always gives the same plan.
//
// Every extent (a tile, a run of used KV pages, a recurrent state) has one size wherever it lies, and lies on the grid
// in both maps; where pools have different units, the smallest is the grid of all. So each grid position has at most
// one unit that leaves it and at most one that arrives: a transition is a partial permutation of positions, and falls
// into paths and cycles.
//
// Why it cannot deadlock. A unit may move once its destination is empty. A path ends in an empty position, so its last
// unit can move, which empties the position before it, and so on to its start: paths run from their free end and need
// no room. When nothing more can move, all that is left are cycles. One run of units is then copied to staging; each
// cycle that it touches becomes a path ending where the run lay, which runs as before; at its end the run's own
// destination is empty and the run leaves staging. Each round finishes at least one unit and returns the staging, so
// one piece of staging, which may be as small as one unit, is always enough and the rounds end.
//
// What holds at any time. No move writes where bytes are that have no other copy, so every set of moves that has with
// each move those that its `after` names can be undone by the same moves backwards, within the same memory; a move that
// was cut short wrote only where nothing was. Nothing is given back before the transition commits.
//
// Memory. A pool needs max(old, new) for its extents, up to the end of the last one, and a device the sum of that over
// its pools, plus its staging. Staging is none where nothing lies on cycles, else whole pieces, staging_bytes at most;
// one is enough. What is staged waits on the pool for which it is bound; no pool uses the staging of another device. On
// the host, 12 bytes for each grid unit of the pools while planning, and a few hundred bytes for each move.
//
// Use: commit max(region_before, region_after) of each pool, and the staging, before the first move; after the last one
// shrink each to region_after, or, when all was undone, to region_before.
//
// Threads: any, at any time; nothing is shared.

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"

namespace tessera {

/// A place in a pool: bytes from the start of its region. `device` is the pool's index in TransitionRequest::pools: a
/// device, or one range of a device that has several.
struct PoolPosition {
  static constexpr int32_t kNowhere = -1;  // not on any device: a valid copy lies elsewhere (file, shadow)
  int32_t device = kNowhere;
  uint64_t offset = 0;
  bool operator==(const PoolPosition&) const = default;
};

/// Bytes that stay together, and where they lie before and after. From nowhere: read from the other copy. To nowhere:
/// dropped, since the other copy stays; its place counts as empty from the start, so undoing reads it from the other
/// copy again.
struct Extent {
  uint64_t bytes = 0;  // takes whole units
  PoolPosition from;
  PoolPosition to;
};

struct PoolLimits {
  uint64_t unit_bytes = 0;    // grid of this pool, a power of two: offsets are multiples of it
  uint64_t budget_bytes = 0;  // most that extents and staging of this pool may take, what else lives there taken off;
                              // where a device has several pools, their sum is for the caller to check
  int32_t staging_pool = -1;  // an earlier pool whose staging this one uses too (another range of the same device)
};

struct TransitionRequest {
  std::vector<Extent> extents;                  // all that lie in the pools, also what stays (from == to: no move)
  std::vector<PoolLimits> pools;                // a device's, or each of its ranges'
  uint64_t staging_bytes = uint64_t{64} << 20;  // per pool with staging of its own, used only where cycles exist
  uint64_t piece_bytes = uint64_t{32} << 20;    // largest copy; staging_bytes where that is less
};

/// One copy. A staging position is an offset from the start of the staging of that pool, or of its staging_pool. Each
/// pool without a staging_pool has staging of its own: an executor that has one for each device (transition/executor.h)
/// wants all other pools of a device to name the first.
struct Move {
  int32_t extent = 0;
  uint64_t extent_offset = 0;  // which of its bytes
  uint64_t bytes = 0;
  PoolPosition from;
  PoolPosition to;
  bool from_staging = false;
  bool to_staging = false;
  std::vector<int32_t> after;  // earlier moves that must have ended: they empty `to` (staging too), or bring `from`
};

/// What a pool holds at most. Pools of one device add up; its staging stands at the pool that has it.
struct DevicePeak {
  uint64_t region_before = 0;  // end of the last extent in the old map
  uint64_t region_after = 0;   // and in the new one
  uint64_t staging = 0;
  [[nodiscard]] uint64_t bytes() const {
    return (region_before > region_after ? region_before : region_after) + staging;
  }
};

struct Plan {
  std::vector<Move> moves;        // in an order in which they may run one by one
  std::vector<DevicePeak> peaks;  // by pool: what must be committed before the first move
  int64_t n_steps = 0;            // elementary steps that planning took: linear in units moved plus extents
};

/// Errors: kDoesNotFit (every pool that lacks memory, with what it needs and has); kInvalidArgument: an offset off the
/// grid, extents that overlap in one map (both named), a unit that is no power of two, pieces smaller than the smallest
/// unit, an unknown device, a staging_pool that comes later or has no staging of its own, an extent that ends beyond
/// 2^31 units.
Result<Plan> plan_transition(const TransitionRequest& request);

/// Speed of copies from one pool to another; from == to: within the pool. As in PoolPosition, "device" is a pool.
struct LinkSpeed {
  double bytes_per_second = 0;
  double seconds_per_copy = 0;
};

struct LinkUse {
  int32_t from = 0;
  int32_t to = 0;
  uint64_t bytes = 0;
  int64_t n_moves = 0;
};

/// Bytes and copies per pair of pools, in ascending order of (from, to). Moves that stay in a pool have from == to.
std::vector<LinkUse> link_use(const Plan& plan);

/// How long the moves take when each link works at its speed and takes what has been ready for longest, all links at
/// once, and moves wait only for what `after` names. `speed(from, to)` is asked for the pairs that link_use() lists.
double predict_seconds(const Plan& plan, const std::function<LinkSpeed(int32_t from, int32_t to)>& speed);

}  // namespace tessera

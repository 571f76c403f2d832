#pragma once
// Maps for copying ahead: things go to places that are free in the map they come from, so that they can be copied there
// while that map is still in use. Pure, like the layouts of placement.h that these functions take.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "placement/placement.h"

namespace tessera {

/// keep_offsets() for a switch before which things are copied ahead: as many as there is room for, of those that change
/// their device, lie behind everything else that their new device has in either map; what else it has, stays. So its
/// region may have holes, and be larger than either map's: by room[device] bytes at most. close_offsets() ends that.
/// Where no such layout is found: keep_offsets(). REQUIRES: as keep_offsets().
Layout spread_offsets(const Layout& wanted, const Layout& current,
                      const std::function<uint64_t(size_t thing, int device)>& bytes,
                      const std::vector<uint64_t>& room);

/// keep_offsets() that gives back what spread_offsets() took: no region is larger than wanted's by more than a part of
/// kWasteParts. Where things do not fit into the holes so, all that the device has is laid out as wanted.
Layout close_offsets(const Layout& wanted, const Layout& current,
                     const std::function<uint64_t(size_t thing, int device)>& bytes);

/// Things of `next` that change their place and whose new place is free in `current`, in ascending order. Copies to
/// these places disturb nobody, in any order. REQUIRES: nothing overlaps in either map.
std::vector<size_t> to_free_places(const Layout& next, const Layout& current,
                                   const std::function<uint64_t(size_t thing, int device)>& bytes);

}  // namespace tessera

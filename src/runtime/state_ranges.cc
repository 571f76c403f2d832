#include "runtime/state_ranges.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "runtime/memory_plan.h"

namespace tessera {

Status StateRanges::open(std::vector<uint64_t> tile_bytes, const char* purpose) {
  tile_bytes_ = std::move(tile_bytes);
  layout_ = layout_state(model_, model_.placement, tile_bytes_);
  bases_.assign(tile_bytes_.size(), nullptr);
  if (std::ranges::all_of(tile_bytes_, [](uint64_t bytes) { return bytes == 0; })) {
    return {};
  }
  for (size_t d = 0; d < model_.devices.size(); ++d) {
    const uint64_t unit = model_.devices[d].info().unit_bytes;
    uint64_t all = 0;
    for (const uint64_t bytes : tile_bytes_) {
      all += round_up(bytes, unit);
    }
    ASSIGN_OR_RETURN(auto range, model_.devices[d].reserve(all, purpose));
    TRY(range->resize(layout_.region_bytes[d]));
    ranges_.push_back(std::move(range));
  }
  bases_ = bases_for(layout_);
  return {};
}

Layout StateRanges::layout_for(const Placement& placement) const {
  return keep_offsets(layout_state(model_, placement, tile_bytes_), layout_, [&](size_t i, int device) {
    return round_up(tile_bytes_[i], model_.devices[static_cast<size_t>(device)].info().unit_bytes);
  });
}

std::vector<std::byte*> StateRanges::bases_for(const Layout& layout) const {
  std::vector<std::byte*> bases(layout.home.size(), nullptr);
  for (size_t i = 0; i < bases.size(); ++i) {
    if (layout.home[i] >= 0) {
      bases[i] = ranges_[static_cast<size_t>(layout.home[i])]->base() + layout.offset[i];
    }
  }
  return bases;
}

}  // namespace tessera

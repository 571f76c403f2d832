#include "placement/placement.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/checked.h"

namespace tessera {
namespace {

// Shares are taken as represented when no device is off by more than this part of the whole.
constexpr double kShareTolerance = 0.005;

int first_device(const Shares& shares, int n_devices) {
  for (int d = 0; d < n_devices; ++d) {
    if (shares.of(d, n_devices) > 0) {
      return d;
    }
  }
  return 0;
}

// Layers go to devices by the middle of each layer on the line of all layers; the head to the last device.
std::vector<int32_t> layer_homes(size_t n_layer, const Shares& shares, int n_devices) {
  std::vector<int32_t> homes(n_layer + 1);
  int device = first_device(shares, n_devices);
  double device_end = shares.of(device, n_devices);
  for (size_t l = 0; l < n_layer; ++l) {
    const double middle = (static_cast<double>(l) + 0.5) / static_cast<double>(n_layer);
    for (int next = device + 1; next < n_devices && middle >= device_end - kShareTolerance; ++next) {
      if (shares.of(next, n_devices) > 0) {
        device = next;
        device_end += shares.of(next, n_devices);
      }
    }
    homes[l] = device;
  }
  for (int d = 0; d < n_devices; ++d) {
    homes[n_layer] = shares.of(d, n_devices) > 0 ? d : homes[n_layer];
  }
  return homes;
}

std::vector<int32_t> device_of_cut(const Shares& shares, int n_devices, int n_cuts) {
  std::vector<int32_t> device;
  const std::vector<int> counts = cuts_per_device(shares, n_devices, n_cuts);
  for (int d = 0; d < n_devices; ++d) {
    device.insert(device.end(), static_cast<size_t>(counts[static_cast<size_t>(d)]), d);
  }
  return device;
}

}  // namespace

std::string_view split_mode_name(SplitMode mode) {
  switch (mode) {
    case SplitMode::kNone: return "none";
    case SplitMode::kLayer: return "layer";
    case SplitMode::kTensor: return "tensor";
  }
  return "unknown";
}

double Shares::of(int device, int n_devices) const {
  if (parts.empty()) {
    return 1.0 / n_devices;
  }
  return parts[static_cast<size_t>(device)] / std::accumulate(parts.begin(), parts.end(), 0.0);
}

Status check_shares(const Shares& shares, int n_devices, std::string_view flag) {
  if (shares.parts.empty()) {
    return {};
  }
  if (shares.parts.size() != static_cast<size_t>(n_devices)) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{} has {} share{} for {} device{}; give one for each", flag, shares.parts.size(),
                        shares.parts.size() == 1 ? "" : "s", n_devices, n_devices == 1 ? "" : "s")};
  }
  double sum = 0;
  for (const double part : shares.parts) {
    if (!(part >= 0) || !std::isfinite(part)) {
      return {ErrorCode::kInvalidArgument, fmt::format("{} has a share of {}; shares are 0 or more", flag, part)};
    }
    sum += part;
  }
  if (!(sum > 0) || !std::isfinite(sum)) {
    return {ErrorCode::kInvalidArgument, fmt::format("{} gives no device a share", flag)};
  }
  return {};
}

int choose_n_cuts(const Shares& shares, int n_devices, int requested) {
  if (requested > 0) {
    return std::min(requested, kMaxCuts);
  }
  int n_active = 0;
  for (int d = 0; d < n_devices; ++d) {
    n_active += shares.of(d, n_devices) > 0 ? 1 : 0;
  }
  for (int n = n_active; n <= kMaxCuts; ++n) {
    bool exact = true;
    for (int d = 0; d < n_devices; ++d) {
      const double cuts = shares.of(d, n_devices) * n;
      exact = exact && std::abs(cuts - std::round(cuts)) <= kShareTolerance * n;
    }
    if (exact) {
      return n;
    }
  }
  return kMaxCuts;
}

std::vector<int> cuts_per_device(const Shares& shares, int n_devices, int n_cuts) {
  const auto n = static_cast<size_t>(n_devices);
  std::vector<int> counts(n);
  std::vector<double> remainder(n);
  int given = 0;
  for (int d = 0; d < n_devices; ++d) {
    const double wanted = shares.of(d, n_devices) * n_cuts;
    const auto i = static_cast<size_t>(d);
    counts[i] = static_cast<int>(std::floor(wanted + 1e-9));
    remainder[i] = shares.of(d, n_devices) > 0 ? wanted - counts[i] : -1;
    given += counts[i];
  }
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](int a, int b) { return remainder[static_cast<size_t>(a)] > remainder[static_cast<size_t>(b)]; });
  for (size_t i = 0; given < n_cuts; i = (i + 1) % n) {
    const auto d = static_cast<size_t>(order[i]);
    if (remainder[d] >= 0) {
      ++counts[d];
      ++given;
    }
  }
  return counts;
}

void lay_out(const TileSet& tiles, const PlacementTarget& target, Placement& placement) {
  placement.offset.assign(tiles.tiles.size(), 0);
  placement.tile_region_bytes.assign(static_cast<size_t>(target.n_devices), 0);
  const auto lay = [&](size_t t) {
    const int32_t home = placement.home[t];
    uint64_t& region = placement.tile_region_bytes[static_cast<size_t>(home)];
    placement.offset[t] = region;
    region += round_up(target.tile_bytes(tiles.tiles[t], home), target.unit_bytes(home));
  };
  const size_t n_tiles = tiles.tiles.size();
  for (size_t t = 0; t < n_tiles; ++t) {
    if (tiles.tiles[t].kind != TileKind::kHead) {
      lay(t);
    }
  }
  for (size_t t = n_tiles; t-- > 0;) {
    if (tiles.tiles[t].kind == TileKind::kHead) {
      lay(t);
    }
  }
}

Placement make_placement(const TileSet& tiles, SplitMode mode, const Shares& shares, const PlacementTarget& target,
                         uint64_t version) {
  Placement placement;
  placement.version = version;
  placement.made_by = mode;
  const std::vector<int32_t> by_layer = layer_homes(tiles.attn_cuts.size(), shares, target.n_devices);
  const std::vector<int32_t> by_cut = device_of_cut(shares, target.n_devices, tiles.n_cuts);
  for (const Tile& tile : tiles.tiles) {
    int32_t home = first_device(shares, target.n_devices);
    if (mode == SplitMode::kLayer) {
      home = by_layer[tile.layer < 0 ? by_layer.size() - 1 : static_cast<size_t>(tile.layer)];
    } else if (mode == SplitMode::kTensor) {
      home = by_cut[static_cast<size_t>(tile.cut)];
    }
    if (target.streams_experts) {
      placement.worker.push_back(home);
    }
    if (!target.fixed_home.empty() && target.fixed_home[placement.home.size()] >= 0) {
      home = target.fixed_home[placement.home.size()];
      if (target.streams_experts && tile.kind != TileKind::kExpert) {
        placement.worker.back() = home;
      }
    }
    placement.home.push_back(home);
  }
  lay_out(tiles, target, placement);
  return placement;
}

namespace {

/// A thing on the device that is being laid out.
struct Placed {
  size_t thing = 0;
  uint64_t bytes = 0;  // whole units
};

// The smallest part at the end of a region that is laid anew where things do not fit otherwise.
constexpr uint64_t kLeastParts = 128;

/// New offsets for what one device has.
class Region {
 public:
  /// offsets: by thing, of all devices.
  explicit Region(std::vector<uint64_t>& offsets) : offsets_(offsets) {}

  void put(const Placed& t, uint64_t offset) {
    offsets_[t.thing] = offset;
    taken_.emplace_back(offset, offset + t.bytes);
  }
  /// The place of something that goes.
  void vacate(uint64_t bytes, uint64_t offset) { vacant_[bytes].insert(offset); }
  /// Puts those of `moving` for whose size no place is vacant, the largest first, into what is free before `end`, and
  /// takes them out of it. So they do not go behind everything, where new room is: the others come to it, and what
  /// moves begins there, without staging. REQUIRES: what stays is put, and all that goes is known.
  void fill_odd(std::vector<Placed>& moving, uint64_t end) {
    std::ranges::stable_sort(moving, std::greater<>(), &Placed::bytes);
    find_gaps();
    add_gap(end_, end);
    std::map<uint64_t, size_t> n_alike;
    std::map<uint64_t, uint64_t> used;  // begin -> end
    std::erase_if(moving, [&](const Placed& t) {
      const auto places = vacant_.find(t.bytes);
      if ((places != vacant_.end() && n_alike[t.bytes]++ < places->second.size()) ||
          gaps_.lower_bound(t.bytes) == gaps_.end()) {
        return false;
      }
      const uint64_t offset = take(t.bytes);
      put(t, offset);
      used[offset] = offset + t.bytes;
      return true;
    });
    for (auto& [bytes, places] : vacant_) {
      std::erase_if(places, [&, size = bytes](uint64_t offset) {
        const auto next = used.lower_bound(offset + size);
        return next != used.begin() && std::prev(next)->second > offset;
      });
    }
    gaps_.clear();
    end_ = 0;
  }
  /// Finds places for the rest. REQUIRES: what stays is put, and all that goes is known.
  void fill(std::vector<Placed> moving) {
    // Places of just the right size first, the lowest of them: things of a kind are alike, so most that comes takes the
    // place of something that goes, and the moves follow one another whole.
    std::erase_if(moving, [this](const Placed& t) {
      const auto places = vacant_.find(t.bytes);
      if (places == vacant_.end() || places->second.empty()) {
        return false;
      }
      put(t, *places->second.begin());
      places->second.erase(places->second.begin());
      return true;
    });
    find_gaps();
    std::ranges::stable_sort(moving, std::greater<>(), &Placed::bytes);
    for (const Placed& t : moving) {
      offsets_[t.thing] = take(t.bytes);
    }
  }
  /// REQUIRES: it is filled.
  [[nodiscard]] uint64_t end() const { return end_; }

 private:
  void find_gaps() {
    std::ranges::sort(taken_);
    for (const auto& [begin, end] : taken_) {
      add_gap(end_, begin);
      end_ = end;
    }
  }

  void add_gap(uint64_t begin, uint64_t end) {
    if (begin < end) {
      gaps_.emplace(end - begin, begin);
    }
  }

  /// The smallest gap that holds `bytes`, or the end.
  uint64_t take(uint64_t bytes) {
    const auto gap = gaps_.lower_bound(bytes);
    if (gap == gaps_.end()) {
      end_ += bytes;
      return end_ - bytes;
    }
    const auto [size, begin] = *gap;
    gaps_.erase(gap);
    add_gap(begin + bytes, begin + size);
    return begin;
  }

  std::vector<uint64_t>& offsets_;
  std::map<uint64_t, std::set<uint64_t>> vacant_;     // by size: offsets
  std::vector<std::pair<uint64_t, uint64_t>> taken_;  // (begin, end)
  std::multimap<uint64_t, uint64_t> gaps_;            // size -> begin; equal sizes in ascending order
  uint64_t end_ = 0;
};

struct DeviceThings {
  std::vector<Placed> here;  // before and after
  std::vector<Placed> leaving;
  std::vector<Placed> arriving;
};

/// What lies before `keep` stays there; the rest fills what is left, the places of things that go only before
/// vacant_end. odd_first: Region::fill_odd(). Returns the end of the region.
uint64_t fill_gaps(const DeviceThings& things, uint64_t keep, uint64_t vacant_end, bool odd_first,
                   const std::vector<uint64_t>& current, std::vector<uint64_t>& offsets) {
  const auto lies_before = [&](const Placed& t, uint64_t end) {
    return t.bytes <= end && current[t.thing] <= end - t.bytes;
  };
  Region region(offsets);
  std::vector<Placed> moving = things.arriving;
  std::vector<Placed> going = things.leaving;
  for (const Placed& t : things.here) {
    if (lies_before(t, keep)) {
      region.put(t, current[t.thing]);
    } else {
      moving.push_back(t);
      going.push_back(t);
    }
  }
  for (const Placed& t : going) {
    if (lies_before(t, vacant_end)) {
      region.vacate(t.bytes, current[t.thing]);
    }
  }
  if (odd_first) {
    region.fill_odd(moving, vacant_end);
  }
  region.fill(std::move(moving));
  return region.end();
}

/// Moves of things of one size that follow one another: each goes to where the next one is now. Chooses among the
/// places that the things have in the new layout, so that few cycles are many moves long.
class Chains {
 public:
  /// things: all of one size that change their place, in order.
  Chains(Layout& layout, const Layout& current, const std::vector<size_t>& things) : layout_(layout), things_(things) {
    std::map<std::pair<int32_t, uint64_t>, size_t> now;  // place -> thing
    for (const size_t t : things) {
      now[{current.home[t], current.offset[t]}] = t;
    }
    places_.resize(layout.region_bytes.size());
    for (const size_t t : things) {
      const auto occupant = now.find({layout.home[t], layout.offset[t]});
      places_[static_cast<size_t>(layout.home[t])].push_back(
          {layout.offset[t], occupant == now.end() ? kNobody : occupant->second});
    }
    for (std::vector<Place>& places : places_) {
      // Those with somebody in them first: they are taken from the end.
      std::ranges::sort(places, std::greater<>(), &Place::offset);
      std::ranges::stable_partition(places, [](const Place& p) { return p.occupant == kNobody; });
    }
  }

  void link() {
    // Things of several pieces make a chain of each piece, so one cycle may keep all links busy; small things need more
    // cycles, two for each link, but each costs a copy through staging, so short ones are not worth it.
    constexpr size_t kLeastMoves = 32;
    const size_t n_links = std::max<size_t>(places_.size() * (places_.size() - 1), 1);
    const size_t length = std::max(kLeastMoves, things_.size() / (2 * n_links));
    std::set<size_t> linked;
    for (const size_t start : things_) {
      size_t next = start;
      for (size_t n = 1; next != kNobody && linked.insert(next).second; ++n) {
        const Place place = take(static_cast<size_t>(layout_.home[next]), start, n >= length);
        layout_.offset[next] = place.offset;
        next = place.occupant;
      }
    }
  }

 private:
  static constexpr size_t kNobody = SIZE_MAX;
  struct Place {
    uint64_t offset = 0;
    size_t occupant = kNobody;
  };

  // A place on the device: where the chain's start is only when the chain shall close, or nothing else is left.
  Place take(size_t device, size_t start, bool close) {
    std::vector<Place>& places = places_[device];
    size_t i = places.size() - 1;
    if (close) {
      const auto of_start = std::ranges::find(places, start, &Place::occupant);
      i = of_start == places.end() ? i : static_cast<size_t>(of_start - places.begin());
    } else if (places[i].occupant == start && i > 0) {
      --i;
    }
    const Place place = places[i];
    places.erase(places.begin() + static_cast<ptrdiff_t>(i));
    return place;
  }

  Layout& layout_;
  const std::vector<size_t>& things_;
  std::vector<std::vector<Place>> places_;  // by device: not taken yet
};

}  // namespace

Layout keep_offsets(const Layout& wanted, const Layout& current,
                    const std::function<uint64_t(size_t thing, int device)>& bytes) {
  Layout layout = wanted;
  for (size_t d = 0; d < wanted.region_bytes.size(); ++d) {
    const auto device = static_cast<int32_t>(d);
    DeviceThings things;
    for (size_t t = 0; t < wanted.home.size(); ++t) {
      const bool now = current.home[t] == device;
      const bool then = wanted.home[t] == device;
      if (now || then) {
        (now && then ? things.here : now ? things.leaving : things.arriving).push_back({t, bytes(t, device)});
      }
    }
    const uint64_t end = wanted.region_bytes[d];
    const uint64_t most = std::max(end, current.region_bytes[d]);
    const auto lay = [&](uint64_t keep, uint64_t vacant_end, uint64_t limit, bool odd_first = false) {
      std::vector<uint64_t> offsets = layout.offset;
      const uint64_t region = fill_gaps(things, keep, vacant_end, odd_first, current.offset, offsets);
      if (region > limit) {
        return false;
      }
      layout.offset = std::move(offsets);
      layout.region_bytes[d] = region;
      return true;
    };
    // First all that lies within the new region stays, then less and less of it: what moves takes places that are left.
    // At last everything stays.
    const uint64_t limit = std::min(most, end + end / kWasteParts);
    bool laid = lay(end, end, limit, true) || lay(end, end, limit);
    for (uint64_t parts = kLeastParts; !laid && parts >= 2; parts /= 2) {
      laid = lay(end - end / parts, end, limit);
    }
    // Places of one size each may leave no gap for larger things: without them.
    laid = laid || lay(end, 0, limit);
    for (uint64_t parts = kLeastParts; !laid && parts >= 2; parts /= 2) {
      laid = lay(end - end / parts, 0, limit);
    }
    if (!laid) {
      lay(UINT64_MAX, most, most);
    }
  }
  std::map<uint64_t, std::vector<size_t>> moving;  // by size
  for (size_t t = 0; t < layout.home.size(); ++t) {
    if (layout.home[t] >= 0 && (layout.home[t] != current.home[t] || layout.offset[t] != current.offset[t])) {
      moving[bytes(t, layout.home[t])].push_back(t);
    }
  }
  for (const auto& [size, things] : moving) {
    Chains(layout, current, things).link();
  }
  return layout;
}

Layout layout_of(const Placement& placement) {
  return {placement.home, placement.offset, placement.tile_region_bytes};
}

Placement with_layout(Placement placement, Layout layout) {
  placement.home = std::move(layout.home);
  placement.offset = std::move(layout.offset);
  placement.tile_region_bytes = std::move(layout.region_bytes);
  return placement;
}

std::function<uint64_t(size_t tile, int device)> whole_tile_bytes(const TileSet& tiles, const PlacementTarget& target) {
  return [&](size_t tile, int device) {
    return round_up(target.tile_bytes(tiles.tiles[tile], device), target.unit_bytes(device));
  };
}

Placement keep_places(const TileSet& tiles, const Placement& wanted, const Placement& current,
                      const PlacementTarget& target) {
  return with_layout(wanted, keep_offsets(layout_of(wanted), layout_of(current), whole_tile_bytes(tiles, target)));
}

std::vector<double> rounded_shares(const TileSet& tiles, SplitMode mode, const Shares& shares, int n_devices) {
  std::vector<double> parts(static_cast<size_t>(n_devices), 0);
  std::vector<int32_t> homes;  // of equal parts of the model
  switch (mode) {
    case SplitMode::kNone: homes = {first_device(shares, n_devices)}; break;
    case SplitMode::kLayer:
      homes = layer_homes(tiles.attn_cuts.size(), shares, n_devices);
      homes.pop_back();
      break;
    case SplitMode::kTensor: homes = device_of_cut(shares, n_devices, tiles.n_cuts); break;
  }
  for (const int32_t home : homes) {
    parts[static_cast<size_t>(home)] += 1;
  }
  for (double& part : parts) {  // once, so that a half is 0.5
    part /= static_cast<double>(homes.size());
  }
  return parts;
}

}  // namespace tessera

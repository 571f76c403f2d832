#include "placement/placement.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

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

Status check_shares(const Shares& shares, int n_devices) {
  if (shares.parts.empty()) {
    return {};
  }
  if (shares.parts.size() != static_cast<size_t>(n_devices)) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("--tensor-split has {} shares for {} devices; give one per --device", shares.parts.size(),
                        n_devices)};
  }
  double sum = 0;
  for (const double part : shares.parts) {
    if (!(part >= 0) || !std::isfinite(part)) {
      return {ErrorCode::kInvalidArgument, fmt::format("--tensor-split has a share of {}; shares are 0 or more", part)};
    }
    sum += part;
  }
  if (!(sum > 0) || !std::isfinite(sum)) {
    return {ErrorCode::kInvalidArgument, "--tensor-split gives no device a share"};
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

Placement make_placement(const TileSet& tiles, SplitMode mode, const Shares& shares, const PlacementTarget& target,
                         uint64_t version) {
  Placement placement;
  placement.version = version;
  placement.made_by = mode;
  placement.tile_region_bytes.assign(static_cast<size_t>(target.n_devices), 0);
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
    uint64_t& region = placement.tile_region_bytes[static_cast<size_t>(home)];
    placement.home.push_back(home);
    placement.offset.push_back(region);
    region += round_up(target.tile_bytes(tile, home), target.unit_bytes(home));
  }
  return placement;
}

namespace {

/// Free room between tiles that stay on one device, and behind the last of them.
class Gaps {
 public:
  void add(uint64_t begin, uint64_t end) {
    if (begin < end) {
      by_size_.emplace(end - begin, begin);
    }
  }
  void set_end(uint64_t end) { end_ = end; }
  [[nodiscard]] uint64_t end() const { return end_; }

  /// A gap of just this size, if there is one.
  std::optional<uint64_t> take_exactly(uint64_t bytes) {
    return by_size_.contains(bytes) ? std::optional(take(bytes)) : std::nullopt;
  }
  /// The smallest gap that holds `bytes`, or the end.
  uint64_t take(uint64_t bytes) {
    const auto gap = by_size_.lower_bound(bytes);
    if (gap == by_size_.end()) {
      end_ += bytes;
      return end_ - bytes;
    }
    const auto [size, begin] = *gap;
    by_size_.erase(gap);
    add(begin + bytes, begin + size);
    return begin;
  }

 private:
  std::multimap<uint64_t, uint64_t> by_size_;  // size -> begin; equal sizes in order of adding
  uint64_t end_ = 0;
};

struct PlacedTile {
  size_t tile = 0;
  uint64_t bytes = 0;  // whole units
};

/// New offsets for one device's tiles; returns the end of the region.
uint64_t fill_gaps(const std::vector<PlacedTile>& staying, std::vector<PlacedTile> arriving,
                   const std::vector<uint64_t>& current, std::vector<uint64_t>& offsets) {
  std::vector<PlacedTile> in_order = staying;
  std::ranges::sort(in_order, {}, [&](const PlacedTile& t) { return current[t.tile]; });
  Gaps gaps;
  for (const PlacedTile& t : in_order) {
    gaps.add(gaps.end(), current[t.tile]);
    gaps.set_end(current[t.tile] + t.bytes);
    offsets[t.tile] = current[t.tile];
  }
  // Gaps of just the right size first: tiles of a kind are alike, and a smaller one would waste theirs.
  std::erase_if(arriving, [&](const PlacedTile& t) {
    const auto place = gaps.take_exactly(t.bytes);
    offsets[t.tile] = place.value_or(0);
    return place.has_value();
  });
  std::ranges::stable_sort(arriving, std::greater<>(), &PlacedTile::bytes);
  for (const PlacedTile& t : arriving) {
    offsets[t.tile] = gaps.take(t.bytes);
  }
  return gaps.end();
}

}  // namespace

Placement keep_places(const TileSet& tiles, const Placement& wanted, const Placement& current,
                      const PlacementTarget& target) {
  Placement placement = wanted;
  for (int d = 0; d < target.n_devices; ++d) {
    std::vector<PlacedTile> staying;
    std::vector<PlacedTile> arriving;
    for (size_t t = 0; t < tiles.tiles.size(); ++t) {
      if (wanted.home[t] == d) {
        const uint64_t bytes = round_up(target.tile_bytes(tiles.tiles[t], d), target.unit_bytes(d));
        (current.home[t] == d ? staying : arriving).push_back({t, bytes});
      }
    }
    std::vector<uint64_t> offsets = placement.offset;
    const uint64_t end = fill_gaps(staying, std::move(arriving), current.offset, offsets);
    const auto i = static_cast<size_t>(d);
    if (end <= std::max(wanted.tile_region_bytes[i], current.tile_region_bytes[i])) {
      placement.offset = std::move(offsets);
      placement.tile_region_bytes[i] = end;
    }
  }
  return placement;
}

}  // namespace tessera

#include "placement/ahead.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace tessera {
namespace {

using BytesOf = std::function<uint64_t(size_t thing, int device)>;

/// Things that go behind everything else: those that change their device, in order, while there is room.
std::vector<size_t> choose_ahead(const Layout& wanted, const Layout& current, const BytesOf& bytes,
                                 const std::vector<uint64_t>& room) {
  std::vector<uint64_t> left = room;
  for (size_t d = 0; d < left.size(); ++d) {
    left[d] += wanted.region_bytes[d] - std::min(wanted.region_bytes[d], current.region_bytes[d]);
  }
  std::vector<size_t> ahead;
  for (size_t t = 0; t < wanted.home.size(); ++t) {
    const int32_t home = wanted.home[t];
    if (home < 0 || current.home[t] < 0 || home == current.home[t]) {
      continue;
    }
    const uint64_t size = bytes(t, home);
    uint64_t& free = left[static_cast<size_t>(home)];
    if (size > 0 && size <= free) {
      free -= size;
      ahead.push_back(t);
    }
  }
  return ahead;
}

/// The end of what a layout has on each device.
std::vector<uint64_t> ends_of(const Layout& layout, const BytesOf& bytes) {
  std::vector<uint64_t> ends(layout.region_bytes.size(), 0);
  for (size_t t = 0; t < layout.home.size(); ++t) {
    if (layout.home[t] >= 0) {
      uint64_t& end = ends[static_cast<size_t>(layout.home[t])];
      end = std::max(end, layout.offset[t] + bytes(t, layout.home[t]));
    }
  }
  return ends;
}

}  // namespace

Layout spread_offsets(const Layout& wanted, const Layout& current, const BytesOf& bytes,
                      const std::vector<uint64_t>& room) {
  const std::vector<size_t> ahead = choose_ahead(wanted, current, bytes, room);
  Layout rest = wanted;
  std::vector<bool> receives(room.size(), false);
  for (const size_t t : ahead) {
    const auto d = static_cast<size_t>(wanted.home[t]);
    rest.home[t] = -1;
    rest.region_bytes[d] -= bytes(t, wanted.home[t]);
    receives[d] = true;
  }
  for (size_t d = 0; d < room.size(); ++d) {
    if (receives[d]) {  // all that stays may stay: the holes are closed later
      rest.region_bytes[d] = std::max(rest.region_bytes[d], current.region_bytes[d]);
    }
  }
  Layout layout = keep_offsets(rest, current, bytes);
  std::vector<uint64_t> ends = ends_of(layout, bytes);
  for (size_t d = 0; d < room.size(); ++d) {
    ends[d] = std::max(ends[d], current.region_bytes[d]);
  }
  for (const size_t t : ahead) {
    const auto d = static_cast<size_t>(wanted.home[t]);
    layout.home[t] = wanted.home[t];
    layout.offset[t] = ends[d];
    ends[d] += bytes(t, wanted.home[t]);
    layout.region_bytes[d] = ends[d];
  }
  for (size_t d = 0; d < room.size(); ++d) {
    if (layout.region_bytes[d] > std::max(wanted.region_bytes[d], current.region_bytes[d]) + room[d]) {
      return keep_offsets(wanted, current, bytes);
    }
  }
  return layout;
}

Layout close_offsets(const Layout& wanted, const Layout& current, const BytesOf& bytes) {
  Layout layout = keep_offsets(wanted, current, bytes);
  std::vector<bool> anew;
  for (size_t d = 0; d < wanted.region_bytes.size(); ++d) {
    anew.push_back(layout.region_bytes[d] > wanted.region_bytes[d] + wanted.region_bytes[d] / kWasteParts);
    layout.region_bytes[d] = anew[d] ? wanted.region_bytes[d] : layout.region_bytes[d];
  }
  for (size_t t = 0; t < wanted.home.size(); ++t) {
    if (wanted.home[t] >= 0 && anew[static_cast<size_t>(wanted.home[t])]) {
      layout.offset[t] = wanted.offset[t];
    }
  }
  return layout;
}

std::vector<size_t> to_free_places(const Layout& next, const Layout& current, const BytesOf& bytes) {
  std::vector<std::map<uint64_t, uint64_t>> taken(current.region_bytes.size());  // by device: begin -> end
  for (size_t t = 0; t < current.home.size(); ++t) {
    if (current.home[t] >= 0 && bytes(t, current.home[t]) > 0) {
      taken[static_cast<size_t>(current.home[t])][current.offset[t]] = current.offset[t] + bytes(t, current.home[t]);
    }
  }
  std::vector<size_t> things;
  for (size_t t = 0; t < next.home.size(); ++t) {
    const int32_t home = next.home[t];
    if (home < 0 || current.home[t] < 0 || bytes(t, home) == 0 ||
        (home == current.home[t] && next.offset[t] == current.offset[t])) {
      continue;
    }
    const std::map<uint64_t, uint64_t>& places = taken[static_cast<size_t>(home)];
    const auto behind = places.lower_bound(next.offset[t] + bytes(t, home));
    if (behind == places.begin() || std::prev(behind)->second <= next.offset[t]) {
      things.push_back(t);
    }
  }
  return things;
}

}  // namespace tessera

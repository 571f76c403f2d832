#pragma once
// Divisions of a row of items (layers, cuts) into one run per device, for fit.cc. Pure.

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera {

/// What items cost on each device. `sums[d][i]`: bytes of the items before i on device d, i = 0 .. n_items.
struct ItemCosts {
  std::vector<std::vector<uint64_t>> sums;
  std::vector<uint64_t> base;   // by device: whatever it gets
  std::vector<uint64_t> start;  // by device: when it gets items at all
  std::vector<uint64_t> tail;   // by device: when it gets the last item
  std::vector<bool> closed;     // by device: it gets no items

  [[nodiscard]] size_t n_items() const { return sums[0].size() - 1; }
  [[nodiscard]] uint64_t of(size_t device, size_t begin, size_t end) const;
};

/// Offers divisions in which no device costs more than its room, the nearest to `room`'s proportions first, until
/// `accepts` says true or all were offered; says whether one was accepted. counts[d]: items of device d.
bool find_division(const ItemCosts& costs, const std::vector<uint64_t>& room,
                   const std::function<bool(const std::vector<int>& counts)>& accepts);

}  // namespace tessera

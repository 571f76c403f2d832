#pragma once
// Finding things by name through a sorted list of indices. Sorted, not hashed: a hostile file cannot choose names that
// make it slow, and an entry costs four bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

namespace tessera {

/// Indices 0 … n-1 ordered by name_of(index), equal names by index. REQUIRES: n < 2^32.
template <typename NameOf>
std::vector<uint32_t> index_by_name(size_t n, NameOf name_of) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int difference = std::string_view(name_of(a)).compare(name_of(b));
    return difference != 0 ? difference < 0 : a < b;
  });
  return order;
}

/// The index with this name in an order made by index_by_name.
template <typename NameOf>
std::optional<uint32_t> find_by_name(const std::vector<uint32_t>& order, std::string_view name, NameOf name_of) {
  const auto at = std::lower_bound(order.begin(), order.end(), name, [&](uint32_t index, std::string_view wanted) {
    return std::string_view(name_of(index)) < wanted;
  });
  if (at == order.end() || std::string_view(name_of(*at)) != name) {
    return std::nullopt;
  }
  return *at;
}

/// The second of two equal names: the one that stands later, if any name occurs twice.
template <typename NameOf>
std::optional<uint32_t> find_duplicate(const std::vector<uint32_t>& order, NameOf name_of) {
  for (size_t i = 1; i < order.size(); ++i) {
    if (std::string_view(name_of(order[i - 1])) == std::string_view(name_of(order[i]))) {
      return order[i];
    }
  }
  return std::nullopt;
}

}  // namespace tessera

#include "runtime/fit_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera {
namespace {

class Divider {
 public:
  Divider(const ItemCosts& costs, const std::vector<uint64_t>& room,
          const std::function<bool(const std::vector<int>& counts)>& accepts)
      : costs_(costs), room_(room), accepts_(accepts), counts_(room.size(), 0) {
    // Whether the devices from d on can take the items from i on. A longer run leaves less to the others, so the
    // longest that fits decides.
    const size_t n = costs.n_items();
    can_finish_.assign(room.size() + 1, std::vector<bool>(n + 1, false));
    can_finish_.back()[n] = true;
    for (size_t d = room.size(); d-- > 0;) {
      for (size_t i = 0; i <= n; ++i) {
        const int most = longest(d, i);
        can_finish_[d][i] = most >= 0 && can_finish_[d + 1][i + static_cast<size_t>(most)];
      }
    }
  }

  bool run() { return can_finish_[0][0] && give(0, 0); }

 private:
  [[nodiscard]] bool fits(size_t d, size_t begin, size_t end) const { return costs_.of(d, begin, end) <= room_[d]; }

  /// Most items from `begin` on that device d can take; -1: it has no room for what it gets anyway.
  [[nodiscard]] int longest(size_t d, size_t begin) const {
    if (!fits(d, begin, begin)) {
      return -1;
    }
    size_t low = begin;
    size_t high = costs_.closed[d] ? begin : costs_.n_items();
    while (low < high) {
      const size_t middle = low + (high - low + 1) / 2;
      if (fits(d, begin, middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return static_cast<int>(low - begin);
  }

  /// The share of what is left that room alone would give to device d.
  [[nodiscard]] double proportional(size_t d, size_t n_left) const {
    double open = 0;
    for (size_t e = d; e < room_.size(); ++e) {
      open += costs_.closed[e] ? 0 : static_cast<double>(room_[e]);
    }
    return costs_.closed[d] || open == 0 ? 0 : static_cast<double>(n_left) * static_cast<double>(room_[d]) / open;
  }

  bool give(size_t d, size_t begin) {
    if (d == room_.size()) {
      return accepts_(counts_);
    }
    const int most = longest(d, begin);
    std::vector<int> lengths(static_cast<size_t>(most + 1));
    std::iota(lengths.begin(), lengths.end(), 0);
    const double wanted = proportional(d, costs_.n_items() - begin);
    std::ranges::stable_sort(lengths, {}, [&](int length) { return std::abs(length - wanted); });
    for (const int length : lengths) {
      const size_t end = begin + static_cast<size_t>(length);
      if (can_finish_[d + 1][end]) {
        counts_[d] = length;
        if (give(d + 1, end)) {
          return true;
        }
      }
    }
    return false;
  }

  const ItemCosts& costs_;
  const std::vector<uint64_t>& room_;
  const std::function<bool(const std::vector<int>& counts)>& accepts_;
  std::vector<int> counts_;
  std::vector<std::vector<bool>> can_finish_;  // by device and item
};

}  // namespace

uint64_t ItemCosts::of(size_t device, size_t begin, size_t end) const {
  uint64_t bytes = base[device];
  if (end > begin) {
    bytes += start[device] + sums[device][end] - sums[device][begin];
    bytes += end == n_items() ? tail[device] : 0;
  }
  return bytes;
}

bool find_division(const ItemCosts& costs, const std::vector<uint64_t>& room,
                   const std::function<bool(const std::vector<int>& counts)>& accepts) {
  return Divider(costs, room, accepts).run();
}

}  // namespace tessera

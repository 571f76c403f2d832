#include "logit_stats.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>

namespace tessera {

LogitStats logit_stats(std::span<const float> row) {
  LogitStats stats;
  const auto [least, most] = std::ranges::minmax_element(row);
  stats.min = *least;
  stats.max = *most;
  double sum = 0;
  double squares = 0;
  double exponentials = 0;
  for (const float value : row) {
    const auto wide = static_cast<double>(value);
    sum += wide;
    squares += wide * wide;
    exponentials += std::exp(wide - static_cast<double>(stats.max));
  }
  const auto n = static_cast<double>(row.size());
  stats.mean = sum / n;
  stats.rms = std::sqrt(squares / n);
  stats.lse = static_cast<double>(stats.max) + std::log(exponentials);
  return stats;
}

std::vector<std::pair<int32_t, float>> top_logits(std::span<const float> row, size_t n) {
  const auto key = [&](int32_t id) {
    const float value = row[static_cast<size_t>(id)];
    return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
  };
  std::vector<int32_t> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  n = std::min(n, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n), ids.end(),
                    [&](int32_t a, int32_t b) { return key(a) != key(b) ? key(a) > key(b) : a < b; });
  std::vector<std::pair<int32_t, float>> top;
  for (size_t i = 0; i < n; ++i) {
    top.emplace_back(ids[i], row[static_cast<size_t>(ids[i])]);
  }
  return top;
}

double nine_digits(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return std::strtod(text, nullptr);
}

}  // namespace tessera

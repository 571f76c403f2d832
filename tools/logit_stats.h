#pragma once
// What one row of logits says, in the terms of the reference data (tests/data/goldens/FORMAT.md, "Logits"). Sums are
// float64 in ascending order of ids. Pure functions.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

struct LogitStats {
  float min = 0;
  float max = 0;
  double mean = 0;
  double rms = 0;
  double lse = 0;  // log of the sum of exponentials
};

/// REQUIRES: row is not empty. row: [n_vocab] f32
LogitStats logit_stats(std::span<const float> row);

/// The n largest [id, logit], largest first, ties by smaller id; NaN counts as the smallest.
std::vector<std::pair<int32_t, float>> top_logits(std::span<const float> row, size_t n);

/// The number that nine significant digits of `value` stand for: what the reference data prints.
double nine_digits(double value);

}  // namespace tessera

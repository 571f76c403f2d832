#pragma once
// The lists of `bench` and `batched-bench`: every setting may name several values, and every combination is run.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

/// Most that a number in a list may be.
inline constexpr int64_t kMostValue = 1 << 30;

/// The parts of a text between commas, at least one; what belongs together inside one part is joined by `/`.
std::vector<std::string> split_at(std::string_view text, char separator);

/// Whole numbers separated by commas; a range A-B counts up by 1, A-B+S by S, A-B*M multiplies by M.
/// Errors: kInvalidArgument naming the flag: no number, a range that does not rise, below `least` or above `most`, more
/// than 1,000 values.
Result<std::vector<int64_t>> parse_numbers(std::string_view flag, std::string_view text, int64_t least,
                                           int64_t most = kMostValue);

/// A mean, and the deviation of single values from it (n - 1; 0 for one value).
struct Spread {
  double mean = 0;
  double deviation = 0;
};
Spread spread_of(const std::vector<double>& values);

}  // namespace tessera

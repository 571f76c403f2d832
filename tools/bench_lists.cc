#include "bench_lists.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <optional>

namespace tessera {
namespace {

constexpr size_t kMostValues = 1000;

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc{} && stop == text.data() + text.size();
  return whole && value <= kMostValue ? std::optional(value) : std::nullopt;
}

// One part: a number, or a range. Empty: neither.
std::vector<int64_t> range(std::string_view part) {
  const size_t dash = part.find('-', 1);
  if (dash == std::string_view::npos) {
    const auto value = number(part);
    return value ? std::vector{*value} : std::vector<int64_t>();
  }
  const size_t op = part.find_first_of("+*", dash);
  const bool multiplies = op != std::string_view::npos && part[op] == '*';
  const auto first = number(part.substr(0, dash));
  const auto last = number(part.substr(dash + 1, op == std::string_view::npos ? op : op - dash - 1));
  const auto step = op == std::string_view::npos ? std::optional<int64_t>(1) : number(part.substr(op + 1));
  std::vector<int64_t> values;
  if (!first || !last || !step || *step < (multiplies ? 2 : 1) || (multiplies && *first < 1)) {
    return values;
  }
  for (int64_t v = *first; v <= *last && values.size() <= kMostValues; v = multiplies ? v * *step : v + *step) {
    values.push_back(v);
  }
  return values;
}

}  // namespace

std::vector<std::string> split_at(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == text.size()) {
      return parts;
    }
    begin = end + 1;
  }
}

Result<std::vector<int64_t>> parse_numbers(std::string_view flag, std::string_view text, int64_t least, int64_t most) {
  std::vector<int64_t> values;
  for (const std::string& part : split_at(text, ',')) {
    const std::vector<int64_t> some = range(part);
    if (some.empty()) {
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("{} {}: '{}' is neither a number nor a range such as 1-4, 512-2048+512 or 1-64*2", flag,
                                text, part));
    }
    values.insert(values.end(), some.begin(), some.end());
    if (values.size() > kMostValues) {
      return Status(ErrorCode::kInvalidArgument, fmt::format("{}: more than {} values", flag, kMostValues));
    }
  }
  for (const int64_t value : values) {
    if (value < least) {
      return Status(ErrorCode::kInvalidArgument, fmt::format("{} is {}; it must be at least {}", flag, value, least));
    }
    if (value > most) {
      return Status(ErrorCode::kInvalidArgument, fmt::format("{} is {}; it must be at most {}", flag, value, most));
    }
  }
  return values;
}

Spread spread_of(const std::vector<double>& values) {
  Spread spread;
  if (values.empty()) {
    return spread;
  }
  const auto n = static_cast<double>(values.size());
  spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) {
    squares += (value - spread.mean) * (value - spread.mean);
  }
  spread.deviation = values.size() > 1 ? std::sqrt(squares / (n - 1)) : 0;
  return spread;
}

}  // namespace tessera

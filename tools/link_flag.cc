#include "link_flag.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <utility>

namespace tessera {
namespace {

struct Suffix {
  std::string_view name;
  double factor;
};
constexpr Suffix kRates[] = {{"B/s", 1},        {"KB/s", 1e3},     {"MB/s", 1e6},     {"GB/s", 1e9},    {"TB/s", 1e12},
                             {"KiB/s", 0x1p10}, {"MiB/s", 0x1p20}, {"GiB/s", 0x1p30}, {"TiB/s", 0x1p40}};
constexpr Suffix kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

/// A number and one of the suffixes behind it.
template <size_t n>
std::optional<double> parse_quantity(std::string_view text, const Suffix (&suffixes)[n]) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(value) || value < 0) {
    return std::nullopt;
  }
  const std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  for (const Suffix& suffix : suffixes) {
    if (rest == suffix.name) {
      return value * suffix.factor;
    }
  }
  return std::nullopt;
}

Result<std::pair<double, double>> parse_link(std::string_view text) {
  const size_t colon = text.find(':');
  const auto rate = parse_quantity(text.substr(0, colon), kRates);
  if (!rate || !(*rate > 0)) {
    return Status(
        ErrorCode::kInvalidArgument,
        fmt::format("flag --sim-link: \"{}\" is no rate above 0 (such as 12GB/s or 25GiB/s)", text.substr(0, colon)));
  }
  const std::string_view latency = colon == std::string_view::npos ? std::string_view("0s") : text.substr(colon + 1);
  const auto seconds = parse_quantity(latency, kTimes);
  if (!seconds) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("flag --sim-link: \"{}\" is no time (such as 10us or 0.5ms)", latency));
  }
  return std::pair(*rate, *seconds);
}

}  // namespace

Result<SimulatedLinks> parse_sim_link(std::string_view text) {
  const size_t comma = text.find(',');
  SimulatedLinks links;
  ASSIGN_OR_RETURN(std::tie(links.bytes_per_second, links.seconds_per_copy), parse_link(text.substr(0, comma)));
  links.local_bytes_per_second = links.bytes_per_second;
  links.local_seconds_per_copy = links.seconds_per_copy;
  if (comma != std::string_view::npos) {
    ASSIGN_OR_RETURN(std::tie(links.local_bytes_per_second, links.local_seconds_per_copy),
                     parse_link(text.substr(comma + 1)));
  }
  return links;
}

}  // namespace tessera

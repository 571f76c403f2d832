#pragma once
// The value of --sim-link: the speed of a link that is imagined, such as 12GB/s:10us.

#include <string_view>

#include "base/status.h"

namespace tessera {

/// A link between devices, and one within a device.
struct SimulatedLinks {
  double bytes_per_second = 0;
  double seconds_per_copy = 0;
  double local_bytes_per_second = 0;
  double local_seconds_per_copy = 0;
};

/// Parses RATE:LATENCY[,RATE:LATENCY]; the second link is within a device, by default like the first. RATE: a number,
/// then B, KB, MB, GB or TB (powers of 1000) or KiB, MiB, GiB or TiB (of 1024), then /s. LATENCY: a number, then ns,
/// us, ms or s. Errors: kInvalidArgument naming --sim-link and what was found.
Result<SimulatedLinks> parse_sim_link(std::string_view text);

}  // namespace tessera

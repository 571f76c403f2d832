#pragma once
// Kernels and helpers for the tests of this room. Integers, so that results are exact whatever the order.

#include <cstdint>
#include <memory>
#include <vector>

#include "device/cpu/cpu_launch.h"
#include "device/device.h"

namespace tessera::test {

/// out[i] = out[i] * factor + in[(i * 5 + 1) % n]: reads elements that other threads wrote in the command before.
struct MixArgs {
  const uint64_t* in = nullptr;  // [n]
  uint64_t* out = nullptr;       // [n]
  int64_t n = 0;
  uint64_t factor = 3;
};

inline void mix_kernel(void* backend, const void* args, const LaunchSizes& /*sizes*/) {
  const auto& a = *static_cast<const MixArgs*>(args);
  const CpuShare share = cpu_share(*static_cast<const CpuLaunch*>(backend), a.n);
  for (int64_t i = share.begin; i < share.end; ++i) {
    a.out[i] = a.out[i] * a.factor + a.in[(i * 5 + 1) % a.n];
  }
}

inline Command mix(const uint64_t* in, uint64_t* out, int64_t n, uint64_t factor = 3) {
  return {.kernel = mix_kernel,
          .args = std::make_shared<const MixArgs>(MixArgs{in, out, n, factor}),
          .copy = {},
          .name = "mix"};
}

inline Command copy(const void* src, void* dst, uint64_t bytes) {
  Command command;
  command.copy = {.dst = dst, .src = src, .dst_pitch = bytes, .src_pitch = bytes, .width = bytes};
  return command;
}

inline std::shared_ptr<const CommandList> list(CommandList commands) {
  return std::make_shared<const CommandList>(std::move(commands));
}

/// Runs one command on the calling thread alone.
inline void run_alone(const Command& command) {
  CpuLaunch launch;
  command.kernel(&launch, command.args.get(), {});
}

}  // namespace tessera::test

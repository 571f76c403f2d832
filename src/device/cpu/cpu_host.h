#pragma once
// What the machine under the CPU devices is: processor and memory, read from /proc and the limits of the control groups
// that the process is in (base/cgroup.h: version 2 alone).

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

struct CpuHost {
  std::string processor;         // as the processor names itself; "unknown processor" where it does not
  int n_threads = 1;             // that this process can run at once
  uint64_t memory_bytes = 0;     // of the machine or of a group, whichever is least
  uint64_t available_bytes = 0;  // of these, what can be had now without swapping
};

/// Reads the facts anew. Never fails: what cannot be read stays at a guess.
CpuHost cpu_host();

/// The processor's name in the text of /proc/cpuinfo; empty when there is none.
std::string processor_name(std::string_view cpuinfo);

}  // namespace tessera

#pragma once
// On which processors the threads of CPU devices run: what --cpu-mask, --cpu-range, --cpu-strict and --numa ask for,
// and what the system has. Choosing is pure; results of the engine never depend on it.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tessera {

/// CPU numbers as the system counts them, ascending.
using CpuList = std::vector<int>;

struct CpuAffinityOptions {
  std::string mask = {};   // of --cpu-mask: hexadecimal, bit i for CPU i; empty: none
  std::string range = {};  // of --cpu-range: "LO-HI"; empty: none. With a mask: those of either
  bool strict = false;     // of --cpu-strict: each thread on one CPU of its own, in ascending order
  std::string numa = {};   // of --numa: "none" or empty, "distribute", "isolate", "numactl"
};

struct CpuTopology {
  CpuList allowed;                             // CPUs that this process may run on
  std::vector<std::pair<int, CpuList>> nodes;  // memory nodes by number with their CPUs, allowed or not
  int current = 0;                             // CPU that the caller runs on
};

/// Reads the facts anew. Never fails: where the system tells nothing, one node holds all CPUs.
CpuTopology cpu_topology();

/// Where the threads of all CPU devices run.
struct CpuAffinity {
  std::vector<CpuList> sets;  // thread i runs on sets[i % sets.size()]; empty: wherever the system puts it
  CpuList cpus;               // of all sets; empty with them
  CpuList interleave_nodes;   // memory nodes over which weights and caches are spread page by page; empty: as touched

  /// The CPUs of a thread; empty: any.
  [[nodiscard]] CpuList of(int thread) const {
    return sets.empty() ? CpuList() : sets[static_cast<size_t>(thread) % sets.size()];
  }
};

/// numa "distribute" deals the threads out to the nodes in turn and spreads memory over them; "isolate" keeps the
/// threads on the node that the caller runs on (memory follows, since a page lies where it is first touched); "numactl"
/// leaves CPUs and memory to what numactl has set, as "none" does. Errors: kInvalidArgument, naming the flag and the
/// CPUs that exist.
Result<CpuAffinity> choose_affinity(const CpuAffinityOptions& options, const CpuTopology& topology);

/// Threads that this process can run at once on the CPUs of an affinity; at least 1.
int usable_threads(const CpuAffinity& affinity);

/// CPUs in the system's notation "0-3,8"; what cannot be read ends the list.
CpuList parse_cpu_list(std::string_view text);
std::string cpu_list_text(const CpuList& cpus);

}  // namespace tessera

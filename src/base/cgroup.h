#pragma once
// What the control groups that this process is in leave it: its own and all above it, of which the tightest counts.
// Version 2 alone; limits of version 1 are not seen. Nothing here fails: what cannot be read sets no limit.

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The folders of the groups that /proc/self/cgroup names, the process's own first and the root last. root: where they
/// are mounted. In a container of its own namespace, and without such groups, that is the root alone.
std::vector<std::string> cgroup_folders(std::string_view proc_cgroup, const std::string& root);
/// Those of this process.
std::vector<std::string> cgroup_folders();

/// Processors' worth of time that the groups grant; infinity without a quota.
double cgroup_cpus(std::span<const std::string> folders);

struct CgroupMemory {
  uint64_t limit_bytes = std::numeric_limits<uint64_t>::max();
  uint64_t free_bytes = std::numeric_limits<uint64_t>::max();  // until the first of them is at its limit
};
CgroupMemory cgroup_memory(std::span<const std::string> folders);

}  // namespace tessera

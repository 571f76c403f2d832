#include "base/cgroup.h"

#include <algorithm>
#include <sstream>

#include "base/proc.h"

namespace tessera {

std::vector<std::string> cgroup_folders(std::string_view proc_cgroup, const std::string& root) {
  constexpr std::string_view kVersion2 = "0::";
  std::vector<std::string> folders;
  while (!proc_cgroup.empty()) {
    const size_t end = std::min(proc_cgroup.find('\n'), proc_cgroup.size());
    std::string_view line = proc_cgroup.substr(0, end);
    if (line.starts_with(kVersion2)) {
      line.remove_prefix(kVersion2.size());
      for (; line.starts_with('/') && line.size() > 1; line = line.substr(0, line.rfind('/'))) {
        folders.push_back(root + std::string(line));
      }
    }
    proc_cgroup.remove_prefix(std::min(end + 1, proc_cgroup.size()));
  }
  folders.push_back(root);
  return folders;
}

std::vector<std::string> cgroup_folders() {
  return cgroup_folders(proc_text("/proc/self/cgroup"), "/sys/fs/cgroup");
}

double cgroup_cpus(std::span<const std::string> folders) {
  double cpus = std::numeric_limits<double>::infinity();
  for (const std::string& folder : folders) {
    std::istringstream text(proc_text(folder + "/cpu.max"));  // "QUOTA PERIOD", or "max PERIOD"
    double quota_us = 0;
    double period_us = 0;
    if (text >> quota_us >> period_us && quota_us > 0 && period_us > 0) {
      cpus = std::min(cpus, quota_us / period_us);
    }
  }
  return cpus;
}

CgroupMemory cgroup_memory(std::span<const std::string> folders) {
  CgroupMemory memory;
  for (const std::string& folder : folders) {
    const uint64_t limit = proc_number(proc_text(folder + "/memory.max"));  // 0: "max", or no such file
    if (limit > 0) {
      const uint64_t used = proc_number(proc_text(folder + "/memory.current"));
      memory.limit_bytes = std::min(memory.limit_bytes, limit);
      memory.free_bytes = std::min(memory.free_bytes, limit - std::min(used, limit));
    }
  }
  return memory;
}

}  // namespace tessera

#include "device/cpu/cpu_host.h"

#include <algorithm>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/proc.h"
#include "base/threads.h"

namespace tessera {

std::string processor_name(std::string_view cpuinfo) {
  return std::string(proc_value(cpuinfo, "model name"));
}

CpuHost cpu_host() {
  CpuHost host;
  host.processor = processor_name(proc_text("/proc/cpuinfo"));
  if (host.processor.empty()) {
    host.processor = "unknown processor";
  }
  host.n_threads = hardware_threads();

  const std::string meminfo = proc_text("/proc/meminfo");
  host.memory_bytes = proc_bytes(meminfo, "MemTotal");
  host.available_bytes = proc_bytes(meminfo, "MemAvailable");
  if (host.memory_bytes == 0) {
    host.memory_bytes = page_bytes() * static_cast<uint64_t>(std::max(1L, sysconf(_SC_PHYS_PAGES)));
    host.available_bytes = page_bytes() * static_cast<uint64_t>(std::max(1L, sysconf(_SC_AVPHYS_PAGES)));
  }
  const CgroupMemory group = cgroup_memory(cgroup_folders());
  host.memory_bytes = std::min(host.memory_bytes, group.limit_bytes);
  host.available_bytes = std::min(host.available_bytes, group.free_bytes);
  return host;
}

}  // namespace tessera

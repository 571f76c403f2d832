#include "device/cpu/cpu_host.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include "base/threads.h"

namespace tessera {
namespace {

// Files of /proc and /sys have no size, so they are read as streams.
std::string stream_text(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

uint64_t number(std::string_view text) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

// The value of the first line `key: value`, trimmed.
std::string_view value_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && trim(line.substr(0, colon)) == key) {
      return trim(line.substr(colon + 1));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

}  // namespace

std::string processor_name(std::string_view cpuinfo) {
  return std::string(value_of(cpuinfo, "model name"));
}

uint64_t meminfo_bytes(std::string_view meminfo, std::string_view key) {
  return number(value_of(meminfo, key)) * 1024;
}

CpuHost cpu_host() {
  CpuHost host;
  host.processor = processor_name(stream_text("/proc/cpuinfo"));
  if (host.processor.empty()) {
    host.processor = "unknown processor";
  }
  host.n_threads = hardware_threads();

  const std::string meminfo = stream_text("/proc/meminfo");
  host.memory_bytes = meminfo_bytes(meminfo, "MemTotal");
  host.available_bytes = meminfo_bytes(meminfo, "MemAvailable");
  if (host.memory_bytes == 0) {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    host.memory_bytes = page * static_cast<uint64_t>(std::max(1L, sysconf(_SC_PHYS_PAGES)));
    host.available_bytes = page * static_cast<uint64_t>(std::max(1L, sysconf(_SC_AVPHYS_PAGES)));
  }
  // A container's limit; "max" and a missing file read as 0.
  const uint64_t limit = number(stream_text("/sys/fs/cgroup/memory.max"));
  if (limit != 0 && limit < host.memory_bytes) {
    const uint64_t used = number(stream_text("/sys/fs/cgroup/memory.current"));
    host.memory_bytes = limit;
    host.available_bytes = std::min(host.available_bytes, limit - std::min(used, limit));
  }
  return host;
}

}  // namespace tessera

// Questions about the machine.

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/proc.h"
#include "base/units.h"
#include "device/registry.h"
#include "doctor.h"
#include "kernels/cpu/cpu_kernels.h"

namespace tessera {
namespace {

constexpr size_t kProcessesShown = 3;
constexpr uint64_t kFilesBesideConnections = 64;  // the model, sockets that listen, standard streams, libraries

std::string gib(uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

uint64_t limit_of(int resource) {
  rlimit limit = {};
  return getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY
             ? 0
             : limit.rlim_cur;
}

// The word in brackets: "always [madvise] never".
std::string chosen(std::string_view text) {
  const size_t open = text.find('[');
  const size_t close = text.find(']');
  return open == std::string_view::npos || close == std::string_view::npos || close < open
             ? std::string()
             : std::string(text.substr(open + 1, close - open - 1));
}

std::vector<ProcessMemory> largest_processes() {
  std::vector<ProcessMemory> all;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    int64_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size() || pid == getpid()) {
      continue;
    }
    const std::string status = proc_text(entry.path() / "status");
    all.push_back({std::string(proc_value(status, "Name")), pid, proc_bytes(status, "VmRSS")});
  }
  std::ranges::sort(all, std::greater(), &ProcessMemory::bytes);
  all.resize(std::min(all.size(), kProcessesShown));
  return all;
}

std::string largest_text(const MachineFacts& facts) {
  std::string text;
  for (const ProcessMemory& process : facts.processes) {
    text += fmt::format("{}{} ({}) {}", text.empty() ? "" : ", ", process.name, process.pid, gib(process.bytes));
  }
  return text;
}

// Binds a socket as a server would, and lets go of it again; the error, or 0.
int try_to_bind(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return errno;
  }
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool listens = bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, 1) == 0;
  const int error = listens ? 0 : errno;
  close(fd);
  return error;
}

Check check_socket_file(const std::string& path) {
  Check check{.name = "address", .found = path};
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    check.verdict = Verdict::kBad;
    check.found += " is too long for a unix socket";
    check.to_do = fmt::format("--host with a path of at most {} bytes", sizeof(sockaddr_un::sun_path) - 1);
  } else if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) {
    check.verdict = Verdict::kBad;
    check.found += fmt::format(": {}", std::strerror(errno));
    check.to_do = "--host with a path in a folder that exists and may be written to";
  }
  return check;
}

}  // namespace

MachineFacts machine_facts() {
  MachineFacts facts;
  const AvailableDevice cpu = available_devices().front();
  facts.processor = cpu.description;
  facts.n_threads = cpu.n_threads;
  facts.usable_bytes = cpu.memory_bytes;
  facts.available_bytes = cpu.available_bytes;
  const std::vector<CpuIsa> isas = cpu_isas();
  for (const CpuIsa isa : {CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvxVnni, CpuIsa::kAvx512Vnni}) {
    (std::ranges::count(isas, isa) > 0 ? facts.isas : facts.missing_isas).emplace_back(cpu_isa_name(isa));
  }
  facts.n_cpus = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  facts.n_nodes = static_cast<int>(cpu_topology().nodes.size());
  const std::string meminfo = proc_text("/proc/meminfo");
  facts.memory_bytes = std::max(proc_bytes(meminfo, "MemTotal"), facts.usable_bytes);
  facts.swap_bytes = proc_bytes(meminfo, "SwapTotal");
  facts.swap_used_bytes = facts.swap_bytes - std::min(facts.swap_bytes, proc_bytes(meminfo, "SwapFree"));
  facts.strict_commit = proc_number(proc_text("/proc/sys/vm/overcommit_memory")) == 2;
  const uint64_t commit_limit = proc_bytes(meminfo, "CommitLimit");
  facts.commit_left_bytes = commit_limit - std::min(commit_limit, proc_bytes(meminfo, "Committed_AS"));
  facts.huge_pages = chosen(proc_text("/sys/kernel/mm/transparent_hugepage/enabled"));
  facts.address_space_bytes = limit_of(RLIMIT_AS);
  facts.n_open_files = limit_of(RLIMIT_NOFILE);
  facts.processes = largest_processes();
  return facts;
}

Check check_processor(const MachineFacts& facts) {
  Check check{.name = "processor", .found = facts.processor};
  if (!facts.isas.empty()) {
    check.found += fmt::format("; computes with {}", facts.isas.back());
  }
  if (!facts.missing_isas.empty()) {
    check.found += fmt::format("; lacks {}", fmt::join(facts.missing_isas, ", "));
  }
  if (facts.isas.size() <= 1) {
    check.verdict = Verdict::kWarn;
    check.to_do =
        "many times slower than with AVX2: in a virtual machine choose the host's processor type (cpu "
        "host-passthrough)";
  }
  return check;
}

Check check_threads(const MachineFacts& facts, uint64_t n_wanted) {
  Check check{.name = "threads", .found = fmt::format("{} of {} CPUs may be used", facts.n_threads, facts.n_cpus)};
  if (n_wanted > static_cast<uint64_t>(facts.n_threads)) {
    check.verdict = Verdict::kWarn;
    check.found += fmt::format("; --threads asks for {}", n_wanted);
    check.to_do = fmt::format("--threads {}: threads that share a CPU wait for each other", facts.n_threads);
  } else if (facts.n_threads < facts.n_cpus) {
    check.verdict = Verdict::kWarn;
    check.to_do =
        "the affinity (taskset) or the container's quota (--cpus, CPUQuota=) gives more, if that is not meant";
  }
  return check;
}

Check check_nodes(const MachineFacts& facts, std::string_view numa) {
  Check check{.name = "NUMA", .found = fmt::format("{} memory node{}", facts.n_nodes, facts.n_nodes == 1 ? "" : "s")};
  if (facts.n_nodes > 1 && (numa.empty() || numa == "none")) {
    check.verdict = Verdict::kWarn;
    check.to_do = "--numa distribute: uses the memory of all nodes evenly";
  }
  return check;
}

Check check_memory(const MachineFacts& facts) {
  Check check{.name = "memory",
              .found = fmt::format("{} of {} free", gib(facts.available_bytes), gib(facts.usable_bytes))};
  if (facts.available_bytes < facts.usable_bytes / 4) {
    check.verdict = Verdict::kWarn;
    check.found += facts.processes.empty() ? "" : "; most is held by " + largest_text(facts);
    check.to_do = "end what is not needed";
  }
  return check;
}

Check check_memory_limit(const MachineFacts& facts) {
  if (facts.usable_bytes >= facts.memory_bytes) {
    return {.name = "memory limit", .found = "none"};
  }
  Check check{.name = "memory limit",
              .found = fmt::format("the container has {} of the machine's {}", gib(facts.usable_bytes),
                                   gib(facts.memory_bytes))};
  if (facts.usable_bytes < facts.memory_bytes / 2) {
    check.verdict = Verdict::kWarn;
    check.to_do = "a larger limit (docker --memory, MemoryMax= of a systemd unit) if that is not meant";
  }
  return check;
}

Check check_swap(const MachineFacts& facts) {
  if (facts.swap_bytes == 0) {
    return {.name = "swap", .found = "none"};
  }
  Check check{.name = "swap", .found = fmt::format("{} of {} used", gib(facts.swap_used_bytes), gib(facts.swap_bytes))};
  if (facts.swap_used_bytes > facts.swap_bytes / 4) {
    check.verdict = Verdict::kWarn;
    check.to_do =
        "end what is not needed, or sysctl vm.swappiness=1: weights that are swapped out make every token wait";
  }
  return check;
}

Check check_overcommit(const MachineFacts& facts, uint64_t needed_bytes) {
  if (!facts.strict_commit) {
    return {.name = "overcommit", .found = "not strict"};
  }
  Check check{
      .name = "overcommit",
      .found = fmt::format("strict (vm.overcommit_memory=2), {} left to promise", gib(facts.commit_left_bytes))};
  if (needed_bytes > facts.commit_left_bytes) {
    check.verdict = Verdict::kBad;
    check.found += fmt::format(", {} needed", gib(needed_bytes));
    check.to_do = "sysctl vm.overcommit_memory=0, or a higher vm.overcommit_ratio";
  }
  return check;
}

Check check_huge_pages(const MachineFacts& facts) {
  if (facts.huge_pages == "always" || facts.huge_pages == "madvise") {
    return {.name = "huge pages", .found = facts.huge_pages};
  }
  return {.name = "huge pages",
          .verdict = Verdict::kWarn,
          .found = facts.huge_pages.empty() ? "this system has no transparent ones" : facts.huge_pages,
          .to_do = facts.huge_pages.empty()
                       ? "a kernel with CONFIG_TRANSPARENT_HUGEPAGE reads weights faster"
                       : "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: weights are read faster"};
}

Check check_address_space(const MachineFacts& facts, uint64_t needed_bytes) {
  if (facts.address_space_bytes == 0) {
    return {.name = "address space", .found = "no limit"};
  }
  // Ranges are reserved for all that a device may ever hold, so that a limit near the need may be too little, too.
  const bool too_little = needed_bytes > facts.address_space_bytes;
  return {.name = "address space",
          .verdict = too_little ? Verdict::kBad : Verdict::kWarn,
          .found = fmt::format("limited to {}{}", gib(facts.address_space_bytes),
                               too_little ? fmt::format(", {} needed", gib(needed_bytes)) : ""),
          .to_do = "ulimit -v unlimited: address ranges are reserved for more than is used"};
}

Check check_open_files(const MachineFacts& facts, uint64_t n_connections) {
  const uint64_t needed = n_connections + kFilesBesideConnections;
  if (facts.n_open_files == 0 || facts.n_open_files >= needed) {
    return {.name = "open files", .found = facts.n_open_files == 0 ? "no limit" : std::to_string(facts.n_open_files)};
  }
  return {.name = "open files",
          .verdict = Verdict::kWarn,
          .found = fmt::format("limited to {}, --max-connections is {}", facts.n_open_files, n_connections),
          .to_do = fmt::format("ulimit -n {} (LimitNOFILE= of a systemd unit), or a lower --max-connections", needed)};
}

Check check_address(const std::string& host, uint16_t port) {
  if (host.ends_with(".sock")) {
    return check_socket_file(host);
  }
  Check check{.name = "address", .found = fmt::format("{} port {}", host, port)};
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    check.verdict = Verdict::kBad;
    check.found += fmt::format(": {}", gai_strerror(error));
    check.to_do = "--host with an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them";
    return check;
  }
  const int error = try_to_bind(*found);
  freeaddrinfo(found);
  if (error != 0) {
    check.verdict = Verdict::kBad;
    check.found += fmt::format(": {}", std::strerror(error));
    check.to_do = error == EADDRINUSE ? fmt::format(
                                            "--port with another number, or end what listens there: "
                                            "ss -ltnp 'sport = :{}' names it",
                                            port)
                  : error == EADDRNOTAVAIL
                      ? "--host with an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them"
                  : error == EACCES ? "--port with a number above 1023"
                                    : "--host 127.0.0.1, or 0.0.0.0 for all addresses of the older kind";
  }
  return check;
}

}  // namespace tessera

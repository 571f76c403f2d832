#include "device/cpu/cpu_affinity.h"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>
#include <fstream>
#include <iterator>
#include <optional>
#include <sched.h>

#include "base/threads.h"

namespace tessera {
namespace {

constexpr int kMaxCpus = 8192;   // the most that Linux can be built for
constexpr int kMaxNodes = 1024;  // the same for memory nodes

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? std::optional(value) : std::nullopt;
}

// "LO-HI", or "N" for N-N.
std::optional<std::pair<int, int>> parse_range(std::string_view text) {
  const size_t dash = text.find('-');
  const auto low = number(text.substr(0, dash));
  const auto high = dash == std::string_view::npos ? low : number(text.substr(dash + 1));
  return low && high && *low <= *high && *high < kMaxCpus ? std::optional(std::pair(*low, *high)) : std::nullopt;
}

CpuList common(const CpuList& a, const CpuList& b) {
  CpuList result;
  std::ranges::set_intersection(a, b, std::back_inserter(result));
  return result;
}

Status refuse(std::string_view what, const CpuTopology& topology) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}; there are CPUs {}", what, cpu_list_text(topology.allowed))};
}

Result<CpuList> parse_mask(const std::string& mask, const CpuTopology& topology) {
  std::string_view digits = mask;
  if (digits.starts_with("0x") || digits.starts_with("0X")) {
    digits.remove_prefix(2);
  }
  CpuList cpus;
  for (size_t i = 0; i < digits.size(); ++i) {
    const char digit = digits[digits.size() - 1 - i];
    int bits = 0;
    const auto [end, error] = std::from_chars(&digit, &digit + 1, bits, 16);
    if (error != std::errc() || i >= kMaxCpus / 4) {
      return refuse(fmt::format("--cpu-mask '{}' is no hexadecimal number of at most {} bits", mask, kMaxCpus),
                    topology);
    }
    for (int bit = 0; bit < 4; ++bit) {
      if ((bits >> bit & 1) != 0) {
        cpus.push_back(static_cast<int>(4 * i) + bit);
      }
    }
  }
  return cpus;
}

Result<CpuList> parse_range_flag(const std::string& range, const CpuTopology& topology) {
  const auto ends = range.find('-') == std::string::npos ? std::nullopt : parse_range(range);
  if (!ends) {
    return refuse(fmt::format("--cpu-range '{}' is no range of CPUs like 0-3", range), topology);
  }
  CpuList cpus;
  for (int cpu = ends->first; cpu <= ends->second; ++cpu) {
    cpus.push_back(cpu);
  }
  return cpus;
}

// The CPUs that mask and range name; nothing when neither is given.
Result<CpuList> named_cpus(const CpuAffinityOptions& options, const CpuTopology& topology) {
  CpuList named;
  const auto add = [&](std::string_view flag, const CpuList& cpus) -> Status {
    CpuList missing;
    std::ranges::set_difference(cpus, topology.allowed, std::back_inserter(missing));
    if (cpus.empty() || !missing.empty()) {
      return refuse(fmt::format("{} names {}", flag, cpus.empty() ? "no CPU" : "CPUs " + cpu_list_text(missing)),
                    topology);
    }
    named.insert(named.end(), cpus.begin(), cpus.end());
    return {};
  };
  if (!options.mask.empty()) {
    ASSIGN_OR_RETURN(const CpuList cpus, parse_mask(options.mask, topology));
    TRY(add("--cpu-mask " + options.mask, cpus));
  }
  if (!options.range.empty()) {
    ASSIGN_OR_RETURN(const CpuList cpus, parse_range_flag(options.range, topology));
    TRY(add("--cpu-range " + options.range, cpus));
  }
  std::ranges::sort(named);
  named.erase(std::unique(named.begin(), named.end()), named.end());
  return named;
}

// One set for each node with usable CPUs, and those nodes.
void distribute(const CpuList& usable, const CpuTopology& topology, CpuAffinity& affinity) {
  for (const auto& [node, cpus] : topology.nodes) {
    CpuList set = common(cpus, usable);
    if (!set.empty()) {
      affinity.sets.push_back(std::move(set));
      affinity.interleave_nodes.push_back(node);
    }
  }
}

// From sets of several CPUs to sets of one, in the order in which threads take them.
std::vector<CpuList> one_by_one(const std::vector<CpuList>& sets) {
  std::vector<CpuList> singles;
  for (size_t i = 0;; ++i) {
    const size_t before = singles.size();
    for (const CpuList& set : sets) {
      if (i < set.size()) {
        singles.push_back({set[i]});
      }
    }
    if (singles.size() == before) {
      return singles;
    }
  }
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

CpuList parse_cpu_list(std::string_view text) {
  CpuList cpus;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const auto range = parse_range(text.substr(0, end));
    if (!range) {
      break;
    }
    for (int cpu = range->first; cpu <= range->second; ++cpu) {
      cpus.push_back(cpu);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return cpus;
}

std::string cpu_list_text(const CpuList& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) {
      ++last;
    }
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    text += last > i ? fmt::format("-{}", cpus[last]) : "";
    i = last + 1;
  }
  return text;
}

CpuTopology cpu_topology() {
  CpuTopology topology;
  topology.allowed = allowed_cpus();
  topology.current = std::max(sched_getcpu(), 0);
  for (const int node : parse_cpu_list(first_line("/sys/devices/system/node/online"))) {
    if (node < kMaxNodes) {
      topology.nodes.emplace_back(
          node, parse_cpu_list(first_line(fmt::format("/sys/devices/system/node/node{}/cpulist", node))));
    }
  }
  if (topology.nodes.empty()) {
    topology.nodes.emplace_back(0, topology.allowed);
  }
  return topology;
}

Result<CpuAffinity> choose_affinity(const CpuAffinityOptions& options, const CpuTopology& topology) {
  ASSIGN_OR_RETURN(const CpuList named, named_cpus(options, topology));
  const CpuList& usable = named.empty() ? topology.allowed : named;
  CpuAffinity affinity;
  if (options.numa == "distribute") {
    distribute(usable, topology, affinity);
  } else if (options.numa == "isolate") {
    for (const auto& [node, cpus] : topology.nodes) {
      if (std::ranges::binary_search(cpus, topology.current)) {
        affinity.sets.push_back(common(cpus, usable));
      }
    }
    if (affinity.sets.empty() || affinity.sets[0].empty()) {
      return refuse(fmt::format("--numa isolate: none of the CPUs {} belongs to the memory node of CPU {}",
                                cpu_list_text(usable), topology.current),
                    topology);
    }
  } else if (!options.numa.empty() && options.numa != "none" && options.numa != "numactl") {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("--numa {}: known are none, distribute, isolate, numactl", options.numa));
  } else if (!named.empty() || options.strict) {
    affinity.sets.push_back(usable);
  }
  for (const CpuList& set : affinity.sets) {
    affinity.cpus.insert(affinity.cpus.end(), set.begin(), set.end());
  }
  std::ranges::sort(affinity.cpus);
  if (options.strict) {
    affinity.sets = one_by_one(affinity.sets);
  }
  return affinity;
}

int usable_threads(const CpuAffinity& affinity) {
  const int n = hardware_threads();
  return affinity.cpus.empty() ? n : std::min(n, static_cast<int>(affinity.cpus.size()));
}

}  // namespace tessera

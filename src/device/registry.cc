#include "device/registry.h"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>
#include <map>
#include <utility>

#include "device/cpu/cpu_device.h"
#include "device/cpu/cpu_host.h"
#include "device/null/null_device.h"

namespace tessera {
namespace {

constexpr std::string_view kBackends[] = {"cpu", "null"};

Status bad_name(std::string_view name, std::string_view why) {
  return {ErrorCode::kInvalidArgument, fmt::format("--device '{}': {}; a device is named like cpu:0", name, why)};
}

Result<DeviceSpec> parse_device_name(std::string_view name) {
  const size_t colon = name.find(':');
  DeviceSpec spec;
  spec.backend = name.substr(0, colon);
  if (spec.backend.empty()) {
    return bad_name(name, "the backend is missing");
  }
  if (std::find(std::begin(kBackends), std::end(kBackends), spec.backend) == std::end(kBackends)) {
    return Status(
        ErrorCode::kUnsupported,
        fmt::format("--device '{}': this build has no backend '{}'; its devices are named cpu:0, cpu:1 and so on", name,
                    spec.backend));
  }
  if (colon != std::string_view::npos) {
    const std::string_view digits = name.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), spec.index);
    if (error != std::errc() || end != digits.data() + digits.size() || spec.index < 0 || spec.index > 999) {
      return bad_name(name, fmt::format("'{}' is no index from 0 to 999", digits));
    }
  }
  spec.name = fmt::format("{}:{}", spec.backend, spec.index);
  return spec;
}

// One budget per name; 0 where none was given.
Result<std::vector<uint64_t>> spread_budgets(const std::vector<uint64_t>& given, size_t n_devices) {
  if (std::find(given.begin(), given.end(), 0) != given.end()) {
    return Status(ErrorCode::kInvalidArgument,
                  "--device-memory: a budget of 0 bytes; leave an unused device out of "
                  "--device, or give it a --tensor-split share of 0");
  }
  if (given.size() <= 1) {
    return std::vector<uint64_t>(n_devices, given.empty() ? 0 : given[0]);
  }
  if (given.size() != n_devices) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("--device-memory has {} values for {} devices; give one for all or one for each",
                              given.size(), n_devices));
  }
  return given;
}

}  // namespace

Result<std::vector<DeviceSpec>> parse_device_names(const std::vector<std::string>& names) {
  if (names.empty() || (names.size() == 1 && names[0] == "none")) {
    return std::vector<DeviceSpec>{{"cpu", 0, "cpu:0"}};
  }
  if (names.size() > kMaxDevices) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("--device names {} devices; at most {} are possible", names.size(), kMaxDevices));
  }
  std::vector<DeviceSpec> specs;
  std::map<std::string, int> n_uses;
  for (const std::string& name : names) {
    if (name == "none") {
      return bad_name(name, "cannot stand beside other devices");
    }
    ASSIGN_OR_RETURN(DeviceSpec spec, parse_device_name(name));
    const int n = ++n_uses[spec.name];
    if (n > 1) {
      spec.name += fmt::format("#{}", n);
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

Result<DeviceSet> open_devices(const DeviceOptions& options) {
  ASSIGN_OR_RETURN(const auto specs, parse_device_names(options.names));
  ASSIGN_OR_RETURN(const auto budgets, spread_budgets(options.budget_bytes, specs.size()));

  // The CPU devices are made together, since they divide one machine.
  CpuDeviceOptions cpu;
  cpu.names.clear();
  cpu.n_threads = options.n_threads;
  cpu.ledger = options.ledger;
  cpu.kernel_class = options.cpu_kernel_class;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].backend == "cpu") {
      cpu.names.push_back(specs[i].name);
      cpu.budget_bytes.push_back(budgets[i]);
    }
  }
  DeviceSet set;
  std::vector<std::unique_ptr<Device>> cpu_devices;
  if (!cpu.names.empty()) {
    ASSIGN_OR_RETURN(cpu.affinity, choose_affinity(options.cpu_affinity, cpu_topology()));
    set.cpus = cpu.affinity.cpus;
    const int usable = usable_threads(cpu.affinity);
    set.n_threads = cpu.n_threads == 0 ? usable : cpu.n_threads;
    set.n_runnable = std::min(set.n_threads, usable);
    ASSIGN_OR_RETURN(cpu_devices, make_cpu_devices(cpu));
  }
  auto next_cpu = cpu_devices.begin();
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].backend == "cpu") {
      set.devices.push_back(std::move(*next_cpu++));
      continue;
    }
    NullDeviceOptions null;
    null.name = specs[i].name;
    if (budgets[i] != 0) {
      null.budget_bytes = budgets[i];
    }
    ASSIGN_OR_RETURN(auto device, NullDevice::create(null));
    set.devices.push_back(std::move(device));
  }
  return set;
}

std::vector<AvailableDevice> available_devices() {
  const CpuHost host = cpu_host();
  return {{"cpu:0", host.processor, host.n_threads, host.memory_bytes, host.available_bytes}};
}

}  // namespace tessera

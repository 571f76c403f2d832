#pragma once
// From the words of --device to open devices, and the list of what this machine has.
//
// A name is BACKEND:INDEX; BACKEND alone means index 0, and "none" alone means cpu:0. Indices of cpu and null are mere
// labels. A name given n times makes n logical devices on the same hardware, each with its own budget: the second is
// called "cpu:0#2", and so on, so that messages and tables tell them apart.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/cpu/cpu_affinity.h"
#include "device/device.h"
#include "device/memory_budget.h"

namespace tessera {

/// One entry of --device.
struct DeviceSpec {
  std::string backend;  // "cpu"
  int index = 0;
  std::string name;  // of the logical device, unique in its list
};

/// Largest number of logical devices in one list.
inline constexpr size_t kMaxDevices = 16;

/// Parses the elements of --device; an empty list means cpu:0.
/// Errors: kUnsupported for a backend that this build lacks (names those it has); kInvalidArgument for a malformed name
/// or index, "none" beside others, or more than kMaxDevices.
Result<std::vector<DeviceSpec>> parse_device_names(const std::vector<std::string>& names);

struct DeviceOptions {
  std::vector<std::string> names;             // of --device; empty: cpu:0
  std::vector<uint64_t> budget_bytes;         // of --device-memory: none, one for all, or one for each name
  std::shared_ptr<MemoryLedger> ledger = {};  // where others count what they use of CPU devices; null: nobody does
  int n_threads = 0;  // of --threads, shared by the CPU devices; 0: what the machine runs at once
  std::string cpu_kernel_class = "cpu-scalar";
  CpuAffinityOptions cpu_affinity;  // of --cpu-mask, --cpu-range, --cpu-strict, --numa
};

/// Open devices in the order in which they were named.
struct DeviceSet {
  std::vector<std::unique_ptr<Device>> devices;
  CpuList cpus;        // on which the threads of the CPU devices run; empty: any
  int n_threads = 0;   // of the CPU devices together; 0: there is none
  int n_runnable = 0;  // of these, what their CPUs run at once if nothing else does

  [[nodiscard]] size_t size() const { return devices.size(); }
  Device& operator[](size_t i) const { return *devices[i]; }
};

/// Opens all devices. A budget that is not given is an even share of the memory available to the CPU devices, and no
/// limit for null devices. Errors: those of parse_device_names and choose_affinity; kInvalidArgument for a wrong number
/// of budgets or a budget of 0; kOutOfMemory.
Result<DeviceSet> open_devices(const DeviceOptions& options);

/// A device that --device could name here.
struct AvailableDevice {
  std::string name;
  std::string description;       // processor or card, cores
  int n_threads = 0;             // CPU: threads it runs at once
  uint64_t memory_bytes = 0;     // of the hardware
  uint64_t available_bytes = 0;  // of these, free now
};

/// What this machine has, best first. Never empty.
std::vector<AvailableDevice> available_devices();

}  // namespace tessera

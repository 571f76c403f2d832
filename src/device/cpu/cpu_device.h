#pragma once
// CPU devices: logical devices that divide this machine's threads among them, each with its own queue and budget.
//
// With at least one thread per device, each has a team of its own, and its queue's thread is the first of the team.
// With fewer threads than devices all share one team; a device holds it for one submitted list at a time, never while
// it waits for an event. Results do not depend on any of this: kernels split rows over threads, never sums.

#include <memory>
#include <string>
#include <vector>

#include "device/cpu/cpu_affinity.h"
#include "device/device.h"
#include "device/memory_budget.h"

namespace tessera {

struct CpuDeviceOptions {
  std::vector<std::string> names = {"cpu:0"};  // one device each
  int n_threads = 0;                           // in all, shared by the devices; 0: what its CPUs run at once
  std::vector<uint64_t> budget_bytes = {};     // one for each name; empty or 0: an even share of available memory
  std::shared_ptr<MemoryLedger> ledger = {};   // where others count what they use of these devices; null: nobody does
  std::string kernel_class = "cpu-scalar";     // of the kernel table they are used with
  CpuAffinity affinity = {};                   // where threads run; they are counted over the devices in their order
  // How long a thread spins for another before it sleeps. 50 us covers the gap between two steps of a decode and is
  // about what one sleep and wake-up costs. Not used (0) where threads outnumber cores.
  int spin_us = 50;
};

/// The devices, in the order of the names. REQUIRES: at least one name.
/// Errors: kOutOfMemory when the system grants no more threads; kInvalidArgument for n_threads outside of 0 to
/// kMaxThreads (base/threads.h), or a number of budgets that is not the number of names.
Result<std::vector<std::unique_ptr<Device>>> make_cpu_devices(const CpuDeviceOptions& options);

}  // namespace tessera

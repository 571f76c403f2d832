// `tessera devices`: what --device could name on this machine.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "common.h"
#include "device/registry.h"
#include "report.h"

namespace tessera {

Status cmd_devices(const ParsedFlags& flags) {
  const std::vector<AvailableDevice> devices = available_devices();
  if (flags.get_bool("json")) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const AvailableDevice& device : devices) {
      list.push_back({{"name", device.name},
                      {"description", device.description},
                      {"n_threads", device.n_threads},
                      {"memory_bytes", device.memory_bytes},
                      {"available_bytes", device.available_bytes}});
    }
    return print(nlohmann::ordered_json{{"devices", list}}.dump() + "\n");
  }
  const auto mib = [](uint64_t bytes) { return std::to_string(bytes >> 20); };
  std::vector<std::vector<std::string>> rows = {{"device", "threads", "memory MiB", "free MiB", "what it is"}};
  for (const AvailableDevice& device : devices) {
    rows.push_back({device.name, std::to_string(device.n_threads), mib(device.memory_bytes),
                    mib(device.available_bytes), device.description});
  }
  return print(format_table(rows));
}

}  // namespace tessera

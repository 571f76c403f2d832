#include "report.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"

namespace tessera {

using Json = nlohmann::ordered_json;

std::string placement_json(const Model& model) {
  const ModelSummary& s = model.summary();
  return Json{{"split_mode", model.placement().split_mode},
              {"n_cuts", s.n_cuts},
              {"version", model.placement_version()},
              {"n_layers_attn_cut", s.n_layers_attn_cut},
              {"n_layers_ffn_cut", s.n_layers_ffn_cut},
              {"kernel_class", s.kernel_class},
              {"cpu_isa", s.cpu_isa}}
      .dump();
}

std::string devices_json(const Model& model) {
  Json devices = Json::array();
  for (const DeviceUse& use : model.device_use()) {
    devices.push_back({{"name", use.name},
                       {"weight_bytes", use.weight_bytes},
                       {"kv_bytes", use.kv_bytes},
                       {"rec_bytes", use.rec_bytes},
                       {"scratch_bytes", use.scratch_bytes},
                       {"spare_bytes", use.spare_bytes},
                       {"n_tiles", use.n_tiles},
                       {"budget_bytes", use.budget_bytes}});
  }
  return devices.dump();
}

std::string stats_json(const Context& context) {
  const ContextStats stats = context.stats();
  const ModelSummary& summary = context.model().summary();
  return Json{{"n_tiles", stats.n_tiles},
              {"n_steps", stats.n_steps},
              {"n_reduces", stats.n_reduces},
              {"n_copies", stats.n_copies},
              {"copy_bytes_per_token", stats.copy_bytes_per_token},
              {"n_segments", stats.n_segments},
              {"n_layers_attn_cut", summary.n_layers_attn_cut},
              {"n_layers_ffn_cut", summary.n_layers_ffn_cut},
              {"n_cuts", summary.n_cuts}}
      .dump();
}

std::string placement_line(const Model& model) {
  const ModelSummary& s = model.summary();
  return fmt::format("split {}, {} cut{}, kernels {} ({})\n", model.placement().split_mode, s.n_cuts,
                     s.n_cuts == 1 ? "" : "s", s.kernel_class, s.cpu_isa);
}

std::string device_table(const Model& model) {
  std::vector<std::vector<std::string>> rows = {
      {"device", "weights MiB", "KV MiB", "state MiB", "scratch MiB", "budget MiB", "tiles"}};
  for (const DeviceUse& use : model.device_use()) {
    rows.push_back({use.name, mib_cell(use.weight_bytes), mib_cell(use.kv_bytes), mib_cell(use.rec_bytes),
                    mib_cell(use.scratch_bytes), mib_cell(use.budget_bytes), std::to_string(use.n_tiles)});
  }
  return format_table(rows);
}

std::string mib_cell(uint64_t bytes) {
  return fmt::format("{:.1f}", mib(bytes));
}

std::string format_table(std::span<const std::vector<std::string>> rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], row[c].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) {
      text += c == 0 ? fmt::format("{:<{}}", row[c], widths[c]) : fmt::format("  {:>{}}", row[c], widths[c]);
    }
    text += '\n';
  }
  return text;
}

}  // namespace tessera

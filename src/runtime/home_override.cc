#include "runtime/home_override.h"

#include <fmt/format.h>
#include <string_view>

#include "base/regex.h"

namespace tessera {
namespace {

struct Rule {
  std::string text;  // as given
  RegexMatcher matcher;
  int32_t device = -1;
  bool found = false;

  /// Errors: kInvalidArgument when the expression gives up.
  Result<bool> finds(const std::string& name) {
    const bool here = matcher.find(name).has_value();
    if (const std::string failure = matcher.failure(); !failure.empty()) {
      return Status(ErrorCode::kInvalidArgument, fmt::format("--override-tensor {}: {}", text, failure));
    }
    found = found || here;
    return here;
  }
};

/// The last CPU device: with a GPU or a second CPU device beside it, the one that computes for the host.
Result<int32_t> host_worker(const DeviceSet& devices, std::string_view flag) {
  for (size_t d = devices.size(); d-- > 0;) {
    if (devices[d].info().name.starts_with("cpu")) {
      return static_cast<int32_t>(d);
    }
  }
  return Status(ErrorCode::kInvalidArgument, fmt::format("{} needs a CPU device; add cpu:0 to --device", flag));
}

Result<int32_t> device_of(std::string_view name, const DeviceSet& devices, std::string_view flag) {
  std::string known;
  for (size_t d = 0; d < devices.size(); ++d) {
    if (name == devices[d].info().name) {
      return static_cast<int32_t>(d);
    }
    known += fmt::format("{}{}", d == 0 ? "" : ", ", devices[d].info().name);
  }
  if (name == "CPU") {
    return host_worker(devices, flag);
  }
  return Status(ErrorCode::kInvalidArgument, fmt::format("{}: no device {}; --device has {}", flag, name, known));
}

Result<Rule> parse_rule(const std::string& text, const DeviceSet& devices) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("--override-tensor {}: wanted REGEX=DEVICE, such as ffn_.*_exps=cpu:1", text));
  }
  const std::string_view both = text;
  ASSIGN_OR_RETURN(const int32_t device, device_of(both.substr(at + 1), devices, "--override-tensor"));
  const Result<Regex> regex = Regex::compile(both.substr(0, at), false);
  if (!regex.ok()) {
    return regex.status().with_context("--override-tensor");
  }
  return Rule{text, RegexMatcher(regex.value()), device};
}

/// By tensor: the device of the first rule that finds its name, -1: none does.
Result<std::vector<int32_t>> homes_of_tensors(std::vector<Rule>& rules, const TensorTable& table) {
  std::vector<int32_t> homes(table.tensors.size(), -1);
  for (size_t t = 0; t < homes.size(); ++t) {
    const TensorSpec& spec = table.tensors[t];
    if (spec.tile == TileKind::kReplica || spec.tile == TileKind::kHost) {
      continue;
    }
    for (Rule& rule : rules) {
      ASSIGN_OR_RETURN(const bool finds, rule.finds(spec.name));
      if (finds) {
        homes[t] = rule.device;
        break;
      }
    }
  }
  for (const Rule& rule : rules) {
    if (!rule.found) {
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("--override-tensor {}: finds no tensor that an earlier one left", rule.text));
    }
  }
  return homes;
}

}  // namespace

Result<std::vector<int32_t>> fixed_homes(const ModelOptions& options, const TensorTable& table, const TileSet& tiles,
                                         const DeviceSet& devices) {
  std::vector<Rule> rules;
  for (const std::string& text : options.override_tensor) {
    ASSIGN_OR_RETURN(Rule rule, parse_rule(text, devices));
    rules.push_back(std::move(rule));
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> by_tensor, homes_of_tensors(rules, table));
  int32_t worker = -1;
  if (options.n_cpu_moe > 0) {
    ASSIGN_OR_RETURN(worker, host_worker(devices, "--n-cpu-moe"));
  }
  std::vector<int32_t> homes;
  for (const Tile& tile : tiles.tiles) {
    int32_t home = tile.panels.empty() ? -1 : by_tensor[static_cast<size_t>(tile.panels[0].tensor)];
    for (const TilePanel& panel : tile.panels) {
      if (by_tensor[static_cast<size_t>(panel.tensor)] != home) {
        return Status(ErrorCode::kUnsupported,
                      fmt::format("--override-tensor parts {} from {}; name all weights of the layer's {} part",
                                  table.tensors[static_cast<size_t>(tile.panels[0].tensor)].name,
                                  table.tensors[static_cast<size_t>(panel.tensor)].name, tile_kind_name(tile.kind)));
      }
    }
    if (home < 0 && tile.kind == TileKind::kExpert && tile.layer < options.n_cpu_moe) {
      home = worker;
    }
    homes.push_back(home);
  }
  return homes;
}

}  // namespace tessera

#include "runtime/home_override.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <memory>
#include <pcre2.h>
#include <string_view>

namespace tessera {
namespace {

struct FreeCode {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};

struct Rule {
  std::string text;  // as given
  std::unique_ptr<pcre2_code, FreeCode> expression;
  std::unique_ptr<pcre2_match_data, FreeMatch> match;
  int32_t device = -1;
  bool found = false;

  /// Errors: kInvalidArgument when the expression gives up (PCRE2's own limits).
  Result<bool> finds(const std::string& name) {
    const int rc = pcre2_match(expression.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0,
                               match.get(), nullptr);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
      return Status(ErrorCode::kInvalidArgument, fmt::format("--override-tensor {}: {}", text, message_of(rc)));
    }
    found = found || rc >= 0;
    return rc >= 0;
  }

  static std::string message_of(int error) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    return reinterpret_cast<const char*>(message);
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
  Rule rule;
  rule.text = text;
  ASSIGN_OR_RETURN(rule.device, device_of(std::string_view(text).substr(at + 1), devices, "--override-tensor"));
  int error = 0;
  PCRE2_SIZE place = 0;
  rule.expression.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), at, 0, &error, &place, nullptr));
  if (rule.expression == nullptr) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("--override-tensor {}: {} at character {}", text, Rule::message_of(error), place));
  }
  rule.match.reset(pcre2_match_data_create(1, nullptr));
  if (rule.match == nullptr) {
    return Status(ErrorCode::kOutOfMemory, "no memory is left for --override-tensor");
  }
  return rule;
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

#include "policy_cache.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "base/files.h"
#include "base/threads.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMostBytes = 4 << 20;
constexpr int kVersion = 2;
constexpr int64_t kLifetime_s = 24 * 3600;  // a machine's other work changes from day to day
constexpr double kLargest = 1e12;           // of any number in the file
constexpr int64_t kLongestMeasured = 2064;  // contexts that are longer are measured alike

Json points_json(const std::vector<SpeedPoint>& points) {
  Json all = Json::array();
  for (const SpeedPoint& point : points) {
    all.push_back(Json::array({point.n, point.tokens_per_s}));
  }
  return all;
}

bool is_positive(const Json& value) {
  return value.is_number() && value.get<double>() > 0 && value.get<double>() < kLargest;
}

// Speeds by rising n; nothing when they are not.
std::optional<std::vector<SpeedPoint>> points_of(const Json& all) {
  std::vector<SpeedPoint> points;
  if (!all.is_array()) {
    return std::nullopt;
  }
  for (const Json& each : all) {
    if (!each.is_array() || each.size() != 2 || !each[0].is_number_unsigned() || !is_positive(each[0]) ||
        !is_positive(each[1])) {
      return std::nullopt;
    }
    const SpeedPoint point{each[0].get<int64_t>(), each[1].get<double>()};
    if (!points.empty() && point.n <= points.back().n) {
      return std::nullopt;
    }
    points.push_back(point);
  }
  return points.empty() ? std::nullopt : std::optional(points);
}

std::optional<PolicyEntry> entry_of(const Json& entry) {
  PolicyEntry read;
  SplitMeasures& measures = read.measures;
  const Json made_s = entry.is_object() ? entry.value("made_s", Json()) : Json();
  if (made_s.is_number_unsigned() && is_positive(made_s)) {
    read.made_s = made_s.get<int64_t>();
  } else if (!made_s.is_null()) {
    return std::nullopt;
  }
  const Json splits = entry.is_object() ? entry.value("splits", Json()) : Json();
  const Json switches = entry.is_object() ? entry.value("switch_s", Json()) : Json();
  constexpr std::array<const char*, 2> kModes = {"layer", "tensor"};
  if (!splits.is_array() || splits.size() != 2 || !switches.is_array() || switches.size() != 2) {
    return std::nullopt;
  }
  for (size_t i = 0; i < 2; ++i) {
    const Json& split = splits[i];
    if (!split.is_object() || split.value("split_mode", Json()) != kModes[i] || !is_positive(switches[i])) {
      return std::nullopt;
    }
    const auto prefill = points_of(split.value("prefill", Json()));
    const auto generation = points_of(split.value("generation", Json()));
    if (!prefill || !generation) {
      return std::nullopt;
    }
    measures.splits[i] = {kModes[i], *prefill, *generation};
    measures.switch_s[i] = switches[i].get<double>();
  }
  return read;
}

// The file's content, or an empty cache where it has none that can be used.
Json read_all(const std::string& path, const Log& log) {
  const Result<std::string> text = read_file(path, kMostBytes);
  const Json none = {{"version", kVersion}, {"entries", Json::object()}};
  if (!text.ok()) {
    if (text.status().code() != ErrorCode::kNotFound) {
      log.warning(text.status().message());
    }
    return none;
  }
  Json all = Json::parse(*text, nullptr, false);
  if (!all.is_object() || all.value("version", Json()) != kVersion || !all.value("entries", Json()).is_object()) {
    log.warning(fmt::format("{} is no cache of speeds; it will be replaced", path));
    return none;
  }
  return all;
}

}  // namespace

std::string default_policy_cache() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && *cache != '\0') {
    return fmt::format("{}/tessera/split-policy.json", cache);
  }
  return home != nullptr && *home != '\0' ? fmt::format("{}/.cache/tessera/split-policy.json", home) : std::string();
}

std::string policy_key(const Context& context, const ModelOptions& options) {
  const ModelSummary& s = context.model().summary();
  const ContextOptions& c = context.options();
  std::string devices;
  for (const DeviceUse& use : context.model().device_use()) {
    devices += (devices.empty() ? "" : ",") + use.name;
  }
  return fmt::format(
      "{} layers={} embd={} heads={}/{} vocab={} params={} bytes={} devices={} threads={} mask={} range={} strict={} "
      "numa={} cuts={} kernels={}/{} shares={} homes={} cpu_moe={} slots={} ctx={} batch={} ubatch={} kv={}/{}{}{}",
      s.architecture, s.n_layer, s.n_embd, s.n_head, s.n_kv_head, s.n_vocab, s.n_params, s.file_bytes, devices,
      options.n_threads > 0 ? options.n_threads : hardware_threads(), options.cpu_mask, options.cpu_range,
      options.cpu_strict, options.numa, s.n_cuts, s.kernel_class, s.cpu_isa, fmt::join(options.tensor_split, "/"),
      fmt::join(options.override_tensor, ","), options.n_cpu_moe, options.n_expert_slots,
      std::min(c.n_ctx, kLongestMeasured), c.n_batch, c.n_ubatch, dtype_name(c.k_type), dtype_name(c.v_type),
      options.override_kv.empty() ? "" : " overrides=", fmt::join(options.override_kv, ","));
}

std::optional<PolicyEntry> read_policy_cache(const std::string& path, const std::string& key, const Log& log) {
  if (path.empty()) {
    return std::nullopt;
  }
  const Json all = read_all(path, log);
  const Json& entries = all.at("entries");
  const auto entry = entries.find(key);
  return entry == entries.end() ? std::nullopt : entry_of(*entry);
}

Status write_policy_cache(const std::string& path, const std::string& key, const PolicyEntry& entry) {
  if (path.empty()) {
    return {};
  }
  Json splits = Json::array();
  for (const SplitSpeeds& speeds : entry.measures.splits) {
    splits.push_back({{"split_mode", speeds.split_mode},
                      {"prefill", points_json(speeds.prefill)},
                      {"generation", points_json(speeds.generation)}});
  }
  Json all = read_all(path, {});
  all["entries"][key] = {{"splits", splits}, {"switch_s", entry.measures.switch_s}};
  if (entry.made_s) {
    all["entries"][key]["made_s"] = *entry.made_s;
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;  // what is wrong with the folder, writing says
  if (!folder.empty()) {
    std::filesystem::create_directories(folder, ignored);
  }
  return write_file(path, all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

bool is_out_of_date(const PolicyEntry& entry, int64_t now_s) {
  return entry.made_s && (*entry.made_s > now_s || now_s - *entry.made_s > kLifetime_s);
}

bool is_another_speed(double measured, double cached) {
  return std::max(measured, cached) > 1.25 * std::min(measured, cached);
}

}  // namespace tessera

#include "runtime/sampling_loader.h"

#include <fmt/format.h>
#include <string>

namespace tessera {
namespace {

constexpr std::string_view kPrefix = "general.sampling.";

Status read_setting(const Metadata& meta, const std::string& key, const SamplerSetting& setting,
                    SamplerOptions& options) {
  ASSIGN_OR_RETURN(const float value, meta.get_f32(key));
  return set_sampler_option(options, setting, static_cast<double>(value));
}

Status read_chain(const Metadata& meta, const std::string& key, SamplerOptions& options) {
  ASSIGN_OR_RETURN(const std::string_view names, meta.get_string(key));
  ASSIGN_OR_RETURN(options.samplers, parse_sampler_names(names));
  return {};
}

}  // namespace

SamplerOptions recommended_sampling(const Metadata& meta, const std::function<void(std::string_view)>& warn) {
  SamplerOptions options;
  const auto read = [&](std::string_view name, const auto& reader) {
    const std::string key = fmt::format("{}{}", kPrefix, name);
    if (!meta.has(key)) {
      return;
    }
    const Status status = reader(key);
    if (!status.ok() && warn) {
      warn(fmt::format("{} is left out: {}", key, status.message()));
    }
  };
  for (const SamplerSetting& setting : sampler_settings()) {
    if (!setting.meta_key.empty()) {
      read(setting.meta_key, [&](const std::string& key) { return read_setting(meta, key, setting, options); });
    }
  }
  read("sequence", [&](const std::string& key) { return read_chain(meta, key, options); });
  return options;
}

}  // namespace tessera

#include "runtime/sampler_json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "base/decimal.h"

namespace tessera {

nlohmann::ordered_json sampler_settings_json(const SamplerOptions& options) {
  nlohmann::ordered_json json;
  for (const SamplerSetting& setting : sampler_settings()) {
    nlohmann::ordered_json& value = json[std::string(setting.name)];
    if (const auto* member = std::get_if<float SamplerOptions::*>(&setting.member)) {
      value = as_written(options.**member);
    } else {
      value = options.*std::get<int32_t SamplerOptions::*>(setting.member);
    }
  }
  json["samplers"] = nlohmann::ordered_json::array();
  for (const SamplerStep step : options.samplers) {
    json["samplers"].push_back(sampler_step_name(step));
  }
  json["dry_sequence_breakers"] = options.dry_sequence_breakers;
  return json;
}

}  // namespace tessera

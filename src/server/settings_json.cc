#include "server/settings_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/decimal.h"
#include "runtime/sampler_json.h"

namespace tessera {

Json settings_json(const ServingRequest& request) {
  const SamplerOptions& sampling = request.sampling;
  Json json = {{"n_predict", request.max_tokens}, {"max_tokens", request.max_tokens}, {"seed", sampling.seed}};
  json.update(sampler_settings_json(sampling));
  json["logit_bias"] = Json::array();
  for (const LogitBias& b : sampling.logit_bias) {
    json["logit_bias"].push_back({{"token", b.id}, {"bias", std::isinf(b.bias) ? Json() : Json(as_written(b.bias))}});
  }
  json["stop"] = request.stop;
  json["n_keep"] = request.n_keep;
  json["ignore_eos"] = request.ignore_eos;
  json["n_probs"] = request.n_probs;
  json["post_sampling_probs"] = request.post_sampling_probs;
  json["cache_prompt"] = request.cache_prompt;
  json["priority"] = request.priority;
  return json;
}

}  // namespace tessera

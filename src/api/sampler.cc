// tessera.h: sampling. The one place where the public options and the engine's meet.

#include <cmath>
#include <fmt/format.h>

#include "api/handles.h"

namespace tessera::api {
namespace {

static_assert(kRandomSeed == TSR_RANDOM_SEED);
static_assert(kNoToken == TSR_NO_TOKEN);

tsr_sampler_options default_sampler_options() {
  const SamplerOptions defaults;
  tsr_sampler_options options = {};
  options.temperature = defaults.temperature;
  options.top_k = defaults.top_k;
  options.top_p = defaults.top_p;
  options.min_p = defaults.min_p;
  options.seed = defaults.seed;
  return options;
}

Result<SamplerOptions> sampler_options(const tsr_sampler_options* given) {
  SamplerOptions options;
  if (given == nullptr) {
    return options;
  }
  ASSIGN_OR_RETURN(const tsr_sampler_options known, read_struct(given, "tsr_sampler_options"));
  for (const auto& [name, value] : {std::pair("temperature", known.temperature), std::pair("top_p", known.top_p),
                                    std::pair("min_p", known.min_p)}) {
    if (!std::isfinite(value)) {
      return Status(ErrorCode::kInvalidArgument, fmt::format("{} is no number", name));
    }
  }
  options.temperature = known.temperature;
  options.top_k = known.top_k;
  options.top_p = known.top_p;
  options.min_p = known.min_p;
  options.seed = known.seed;
  return options;
}

Status sample(tsr_sampler& sampler, std::span<const float> logits, int32_t* id) {
  *id = sampler.sampler.sample(logits);
  if (*id == kNoToken) {
    return {ErrorCode::kInvalidData, fmt::format("none of {} logits is a number", logits.size())};
  }
  return {};
}

}  // namespace
}  // namespace tessera::api

using namespace tessera;
using namespace tessera::api;

tsr_status tsr_sampler_options_init(tsr_sampler_options* options, size_t struct_size) {
  return guarded([&] { return init_struct(options, struct_size, default_sampler_options(), "tsr_sampler_options"); });
}

tsr_status tsr_sampler_create(const tsr_sampler_options* options, tsr_sampler** sampler) {
  return guarded([&]() -> Status {
    TRY(need_output(sampler, "sampler"));
    ASSIGN_OR_RETURN(const SamplerOptions wanted, sampler_options(options));
    auto handle = std::make_unique<tsr_sampler>(tsr_sampler{wanted, Sampler(wanted)});
    handle->options.seed = handle->sampler.seed();
    *sampler = handle.release();
    return {};
  });
}

void tsr_sampler_free(tsr_sampler* sampler) {
  delete sampler;
}

tsr_status tsr_sampler_sample(tsr_sampler* sampler, const float* logits, size_t n_vocab, int32_t* id) {
  return guarded([&]() -> Status {
    TRY(need_output(id, "id", TSR_NO_TOKEN));
    TRY(need(sampler, "sampler"));
    ASSIGN_OR_RETURN(const std::span<const float> row, array_argument(logits, n_vocab, "logits"));
    return sample(*sampler, row, id);
  });
}

tsr_status tsr_sampler_sample_row(tsr_sampler* sampler, tsr_context* context, int64_t row, int32_t* id) {
  return on_context(context, [&](Context& c) -> Status {
    TRY(need_output(id, "id", TSR_NO_TOKEN));
    TRY(need(sampler, "sampler"));
    ASSIGN_OR_RETURN(const std::span<const float> logits, logits_row(c, row));
    return sample(*sampler, logits, id);
  });
}

tsr_status tsr_sampler_accept(tsr_sampler* sampler, int32_t id) {
  return guarded([&]() -> Status {
    TRY(need(sampler, "sampler"));
    if (id < 0) {
      return {ErrorCode::kInvalidArgument, fmt::format("{} is no token id", id)};
    }
    return {};
  });
}

tsr_status tsr_sampler_reset(tsr_sampler* sampler) {
  return guarded([&]() -> Status {
    TRY(need(sampler, "sampler"));
    sampler->sampler = Sampler(sampler->options);
    return {};
  });
}

tsr_status tsr_sampler_seed(const tsr_sampler* sampler, uint64_t* seed) {
  return guarded([&]() -> Status {
    TRY(need_output(seed, "seed"));
    TRY(need(sampler, "sampler"));
    *seed = sampler->sampler.seed();
    return {};
  });
}

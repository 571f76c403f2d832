// tessera.h: sampling.

#include <cmath>
#include <fmt/format.h>

#include "api/handles.h"
#include "api/sampler_fields.h"
#include "runtime/sampler_grammar.h"
#include "runtime/sampler_options.h"

namespace tessera::api {
namespace {

static_assert(kRandomSeed == TSR_RANDOM_SEED);
static_assert(kNoToken == TSR_NO_TOKEN);

constexpr SamplerField kFields[] = {
    {"temperature", &tsr_sampler_options::temperature},
    {"dynatemp_range", &tsr_sampler_options::dynatemp_range},
    {"dynatemp_exponent", &tsr_sampler_options::dynatemp_exponent},
    {"top_k", &tsr_sampler_options::top_k},
    {"top_p", &tsr_sampler_options::top_p},
    {"min_p", &tsr_sampler_options::min_p},
    {"typical_p", &tsr_sampler_options::typical_p},
    {"top_n_sigma", &tsr_sampler_options::top_n_sigma},
    {"xtc_probability", &tsr_sampler_options::xtc_probability},
    {"xtc_threshold", &tsr_sampler_options::xtc_threshold},
    {"min_keep", &tsr_sampler_options::min_keep},
    {"repeat_last_n", &tsr_sampler_options::repeat_last_n},
    {"repeat_penalty", &tsr_sampler_options::repeat_penalty},
    {"frequency_penalty", &tsr_sampler_options::frequency_penalty},
    {"presence_penalty", &tsr_sampler_options::presence_penalty},
    {"dry_multiplier", &tsr_sampler_options::dry_multiplier},
    {"dry_base", &tsr_sampler_options::dry_base},
    {"dry_allowed_length", &tsr_sampler_options::dry_allowed_length},
    {"dry_penalty_last_n", &tsr_sampler_options::dry_penalty_last_n},
    {"mirostat", &tsr_sampler_options::mirostat},
    {"mirostat_tau", &tsr_sampler_options::mirostat_tau},
    {"mirostat_eta", &tsr_sampler_options::mirostat_eta},
    {"adaptive_target", &tsr_sampler_options::adaptive_target},
    {"adaptive_decay", &tsr_sampler_options::adaptive_decay},
};

tsr_sampler_options public_options(const SamplerOptions& options) {
  tsr_sampler_options result = {};
  for (const SamplerField& field : kFields) {
    const double value = get_sampler_option(options, *find_sampler_setting(field.name));
    std::visit([&](auto member) { result.*member = static_cast<std::decay_t<decltype(result.*member)>>(value); },
               field.member);
  }
  result.seed = options.seed;
  return result;
}

Result<SamplerOptions> sampler_options(const tsr_sampler_options* given) {
  SamplerOptions options;
  if (given == nullptr) {
    return options;
  }
  ASSIGN_OR_RETURN(const tsr_sampler_options known, read_struct(given, "tsr_sampler_options", public_options({})));
  for (const SamplerField& field : kFields) {
    const double value = std::visit([&](auto member) { return static_cast<double>(known.*member); }, field.member);
    TRY(set_sampler_option(options, *find_sampler_setting(field.name), value));
  }
  options.seed = known.seed;
  if (known.dry_sequence_breakers != nullptr) {
    options.dry_sequence_breakers.clear();
    for (size_t i = 0; i < known.n_dry_sequence_breakers; ++i) {
      TRY(need(known.dry_sequence_breakers[i], "an element of dry_sequence_breakers"));
      options.dry_sequence_breakers.emplace_back(known.dry_sequence_breakers[i]);
    }
  }
  ASSIGN_OR_RETURN(const auto biases, array_argument(known.logit_bias, known.n_logit_bias, "logit_bias"));
  for (const tsr_logit_bias& bias : biases) {
    if (bias.id < 0 || std::isnan(bias.bias)) {
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("logit_bias: {} for token {} is no bias", bias.bias, bias.id));
    }
    options.logit_bias.push_back({bias.id, bias.bias});
  }
  if (known.samplers != nullptr) {
    ASSIGN_OR_RETURN(options.samplers, parse_sampler_names(known.samplers));
  }
  options.grammar = known.grammar != nullptr ? known.grammar : "";
  options.json_schema = known.json_schema != nullptr ? known.json_schema : "";
  return options;
}

Result<DryBreakers> breakers_of(const tsr_model* model, const SamplerOptions& options) {
  if (!Sampler::uses_dry(options)) {
    return DryBreakers();
  }
  TRY(need(model, "model (DRY needs its vocabulary)"));
  ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(*model->model));
  return DryBreakers::create(*tokenizer, options.dry_sequence_breakers);
}

// At its beginning; nothing where the options have none.
Result<std::optional<GrammarMatcher>> grammar_of(const tsr_model* model, const SamplerOptions& options) {
  if (options.grammar.empty() && options.json_schema.empty()) {
    return std::optional<GrammarMatcher>();
  }
  TRY(need(model, "model (a grammar needs its vocabulary)"));
  ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(*model->model));
  ASSIGN_OR_RETURN(std::shared_ptr<GrammarMasks> masks,
                   sampler_grammar(options, *tokenizer, model->model->token_trie()));
  return std::optional(GrammarMatcher(std::move(masks)));
}

// Null where no step asks for it.
Result<const Tokenizer*> vocabulary_of(const tsr_model* model, const SamplerOptions& options) {
  if (!Sampler::uses_infill(options)) {
    return nullptr;
  }
  TRY(need(model, "model (infill needs its vocabulary)"));
  return tokenizer_of(*model->model);
}

// Known only with a model whose vocabulary can be used.
Status check_biased_tokens(const tsr_model* model, const SamplerOptions& options) {
  if (model == nullptr || !model->model->text_status().ok()) {
    return {};
  }
  const int32_t n_vocab = model->model->tokenizer().n_vocab();
  for (const LogitBias& bias : options.logit_bias) {
    if (bias.id >= n_vocab) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("logit_bias: there is no token {}; the vocabulary has {}", bias.id, n_vocab)};
    }
  }
  return {};
}

Status sample(tsr_sampler& sampler, std::span<const float> logits, int32_t* id) {
  *id = sampler.sampler.sample(logits);
  if (*id == kNoToken) {
    return {ErrorCode::kInvalidData, fmt::format("none of {} tokens can be chosen", logits.size())};
  }
  return {};
}

}  // namespace

std::span<const SamplerField> sampler_fields() {
  return kFields;
}

}  // namespace tessera::api

using namespace tessera;
using namespace tessera::api;

tsr_status tsr_sampler_options_init(tsr_sampler_options* options, size_t struct_size) {
  return guarded([&] { return init_struct(options, struct_size, public_options({}), "tsr_sampler_options"); });
}

tsr_status tsr_model_sampler_options_init(const tsr_model* model, tsr_sampler_options* options, size_t struct_size) {
  return guarded([&]() -> Status {
    TRY(need(model, "model"));
    tsr_sampler_options recommended = public_options(model->model->recommended_sampling());
    recommended.samplers = model->recommended_samplers.c_str();
    return init_struct(options, struct_size, recommended, "tsr_sampler_options");
  });
}

tsr_status tsr_sampler_create(const tsr_model* model, const tsr_sampler_options* options, tsr_sampler** sampler) {
  return guarded([&]() -> Status {
    TRY(need_output(sampler, "sampler"));
    ASSIGN_OR_RETURN(const SamplerOptions wanted, sampler_options(options));
    TRY(check_biased_tokens(model, wanted));
    ASSIGN_OR_RETURN(DryBreakers breakers, breakers_of(model, wanted));
    ASSIGN_OR_RETURN(std::optional<GrammarMatcher> grammar, grammar_of(model, wanted));
    ASSIGN_OR_RETURN(const Tokenizer* tokenizer, vocabulary_of(model, wanted));
    auto handle = std::make_unique<tsr_sampler>(tsr_sampler{wanted, breakers, grammar,
                                                            tokenizer == nullptr ? nullptr : model->model, tokenizer,
                                                            Sampler(wanted, breakers, grammar, tokenizer)});
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

tsr_status tsr_sampler_accept(tsr_sampler* sampler, const int32_t* ids, size_t n) {
  return guarded([&]() -> Status {
    TRY(need(sampler, "sampler"));
    ASSIGN_OR_RETURN(const std::span<const int32_t> tokens, array_argument(ids, n, "ids"));
    for (const int32_t id : tokens) {
      if (id < 0) {
        return {ErrorCode::kInvalidArgument, fmt::format("{} is no token id", id)};
      }
    }
    sampler->sampler.accept(tokens);
    return {};
  });
}

tsr_status tsr_sampler_reset(tsr_sampler* sampler) {
  return guarded([&]() -> Status {
    TRY(need(sampler, "sampler"));
    sampler->sampler = Sampler(sampler->options, sampler->breakers, sampler->grammar, sampler->tokenizer);
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

#pragma once
// What a sampler can be told: values with the reference engine's (llama.cpp) names, defaults and meaning, so that
// settings people know mean the same.
//
// One table, sampler_settings(), names every number: flags, requests and a model's metadata fill SamplerOptions through
// set_sampler_option(), and none of them knows a range or a type of its own. Plain values; any thread.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace tessera {

/// This seed asks for a random one.
inline constexpr uint64_t kRandomSeed = 0xFFFFFFFF;

/// The steps that a chain may have.
enum class SamplerStep {
  kPenalties,
  kDry,
  kTopNSigma,
  kTopK,
  kTypicalP,
  kTopP,
  kMinP,
  kXtc,
  kTemperature,
  kInfill,     // these two are in no chain that does not name them
  kAdaptiveP,  // draws last, wherever it stands
};
inline constexpr size_t kSamplerStepKinds = static_cast<size_t>(SamplerStep::kAdaptiveP) + 1;

/// Added to the logit of one token, before everything else; minus infinity bans it.
struct LogitBias {
  int32_t id = 0;
  float bias = 0;
};

struct SamplerOptions {
  float temperature = 0.8F;         // 0: always the largest logit
  float dynatemp_range = 0;         // above 0: temperature within +- range, by the distribution's entropy
  float dynatemp_exponent = 1;      // of the entropy's share of its maximum
  int32_t top_k = 40;               // keep the k largest; 0, -1: all
  float top_p = 0.95F;              // keep the fewest whose probabilities reach p, at least one; 1: all
  float min_p = 0.05F;              // keep those at least p times as probable as the best; 0: all
  float typical_p = 1;              // keep those nearest to the expected surprise until they reach p; 1: all
  float top_n_sigma = -1;           // keep logits within n standard deviations of the best; 0 or less: all
  float xtc_probability = 0;        // of leaving out all but the least of those above the threshold; 0: never
  float xtc_threshold = 0.1F;       // above 0.5: never
  int32_t min_keep = 0;             // top_p, min_p, typical_p and xtc leave at least as many; 0 counts as 1
  int32_t repeat_last_n = 64;       // tokens that the penalties look back; 0: none, -1: all
  float repeat_penalty = 1;         // divides positive logits of tokens seen, multiplies negative ones; 1: off
  float frequency_penalty = 0;      // subtracted for each time a token was seen
  float presence_penalty = 0;       // subtracted once if it was seen
  float dry_multiplier = 0;         // 0: off
  float dry_base = 1.75F;           // penalty: multiplier * base^(length of the repetition - allowed length)
  int32_t dry_allowed_length = 2;   // shorter repetitions are free
  int32_t dry_penalty_last_n = 64;  // 0: off, -1: all
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};  // no repetition reaches across these
  int32_t mirostat = 0;                                                     // 1, 2: instead of the chain below
  float mirostat_tau = 5;                                                   // surprise aimed at, in bits
  float mirostat_eta = 0.1F;                                                // how fast the limit follows
  float adaptive_target = -1;   // probability that adaptive_p favours; below 0: off
  float adaptive_decay = 0.9F;  // of what it has seen, token by token
  std::vector<LogitBias> logit_bias = {};
  std::string grammar = {};      // GBNF (grammar/gbnf.h) that the text must follow; empty: any text
  std::string json_schema = {};  // the same as a JSON schema (grammar/json_schema.h); at most one of both
  std::vector<SamplerStep> samplers = default_chain();
  uint64_t seed = kRandomSeed;

  static std::vector<SamplerStep> default_chain();
};

/// One number among the options.
struct SamplerSetting {
  std::string_view name;      // in requests and reports: "top_k"
  std::string_view meta_key;  // after "general.sampling." in a model file; empty: files do not state it
  std::variant<float SamplerOptions::*, int32_t SamplerOptions::*> member;
  double min;  // inclusive
  double max;
};

/// Every number, in the order of SamplerOptions; constant.
std::span<const SamplerSetting> sampler_settings();

/// The setting of that name, or null.
const SamplerSetting* find_sampler_setting(std::string_view name);

/// Sets one number. REQUIRES: setting is from the table. Errors: kInvalidArgument naming the setting, the value and its
/// range: out of range, NaN, or a fraction where a whole number is due; options are unchanged then.
Status set_sampler_option(SamplerOptions& options, const SamplerSetting& setting, double value);

/// The number that set_sampler_option would set.
double get_sampler_option(const SamplerOptions& options, const SamplerSetting& setting);

/// "top_k" and so on, as reports and --samplers have it.
std::string_view sampler_step_name(SamplerStep step);
/// Its letter for --sampling-seq.
char sampler_step_letter(SamplerStep step);

/// A chain from names joined by ';', such as "top_k;temperature"; also accepts "top-k", "nucleus", "typical", "temp"
/// and the like. Empty text: a chain without steps. Errors: kInvalidArgument naming what is no step, or more than
/// kMaxSamplerSteps.
Result<std::vector<SamplerStep>> parse_sampler_names(std::string_view text);

/// A chain from letters, such as "edskypmxt". Errors: as above.
Result<std::vector<SamplerStep>> parse_sampler_letters(std::string_view letters);

inline constexpr size_t kMaxSamplerSteps = 64;

/// TOKEN+BIAS or TOKEN-BIAS, such as "15043+1" or "2-inf". Errors: kInvalidArgument saying what is wrong.
Result<LogitBias> parse_logit_bias(std::string_view text);

}  // namespace tessera

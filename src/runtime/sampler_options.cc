#include "runtime/sampler_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <limits>

namespace tessera {
namespace {

using Options = SamplerOptions;

constexpr double kFloatMax = std::numeric_limits<float>::max();
constexpr double kIntMax = std::numeric_limits<int32_t>::max();

constexpr SamplerSetting kSettings[] = {
    {"temperature", "temp", &Options::temperature, 0, kFloatMax},
    {"dynatemp_range", "", &Options::dynatemp_range, 0, kFloatMax},
    {"dynatemp_exponent", "", &Options::dynatemp_exponent, 0, kFloatMax},
    {"top_k", "top_k", &Options::top_k, -1, kIntMax},
    {"top_p", "top_p", &Options::top_p, 0, 1},
    {"min_p", "min_p", &Options::min_p, 0, 1},
    {"typical_p", "", &Options::typical_p, 0, 1},
    {"top_n_sigma", "", &Options::top_n_sigma, -1, kFloatMax},
    {"xtc_probability", "xtc_probability", &Options::xtc_probability, 0, 1},
    {"xtc_threshold", "xtc_threshold", &Options::xtc_threshold, 0, 1},
    {"min_keep", "", &Options::min_keep, 0, kIntMax},
    {"repeat_last_n", "penalty_last_n", &Options::repeat_last_n, -1, kIntMax},
    {"repeat_penalty", "penalty_repeat", &Options::repeat_penalty, 0, kFloatMax},
    {"frequency_penalty", "", &Options::frequency_penalty, -kFloatMax, kFloatMax},
    {"presence_penalty", "", &Options::presence_penalty, -kFloatMax, kFloatMax},
    {"dry_multiplier", "", &Options::dry_multiplier, 0, kFloatMax},
    {"dry_base", "", &Options::dry_base, 0, kFloatMax},
    {"dry_allowed_length", "", &Options::dry_allowed_length, 0, kIntMax},
    {"dry_penalty_last_n", "", &Options::dry_penalty_last_n, -1, kIntMax},
    {"mirostat", "mirostat", &Options::mirostat, 0, 2},
    {"mirostat_tau", "mirostat_tau", &Options::mirostat_tau, 0, kFloatMax},
    {"mirostat_eta", "mirostat_eta", &Options::mirostat_eta, 0, kFloatMax},
    {"adaptive_target", "", &Options::adaptive_target, -1, 1},
    {"adaptive_decay", "", &Options::adaptive_decay, 0, 0.99},
};

struct StepNames {
  SamplerStep step;
  char letter;
  std::string_view name;
  std::string_view others;  // accepted, too; separated by blanks
};

// In the order of the default chain, which ends with the temperature.
constexpr StepNames kSteps[] = {
    {SamplerStep::kPenalties, 'e', "penalties", ""},
    {SamplerStep::kDry, 'd', "dry", ""},
    {SamplerStep::kTopNSigma, 's', "top_n_sigma", "top-n-sigma"},
    {SamplerStep::kTopK, 'k', "top_k", "top-k"},
    {SamplerStep::kTypicalP, 'y', "typ_p", "typical_p typical-p typical typ-p typ"},
    {SamplerStep::kTopP, 'p', "top_p", "top-p nucleus"},
    {SamplerStep::kMinP, 'm', "min_p", "min-p"},
    {SamplerStep::kXtc, 'x', "xtc", ""},
    {SamplerStep::kTemperature, 't', "temperature", "temp"},
    {SamplerStep::kInfill, 'i', "infill", ""},
    {SamplerStep::kAdaptiveP, 'a', "adaptive_p", "adaptive-p"},
};
static_assert(std::size(kSteps) == kSamplerStepKinds);

const StepNames& names_of(SamplerStep step) {
  return *std::ranges::find(kSteps, step, &StepNames::step);
}

bool has_word(std::string_view words, std::string_view word) {
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(' ', begin), words.size());
    if (words.substr(begin, end - begin) == word) {
      return true;
    }
    begin = end + 1;
  }
  return false;
}

std::string known_steps() {
  std::string text;
  for (const StepNames& s : kSteps) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", s.name, s.letter);
  }
  return text;
}

// Quotes at most 40 bytes of what a user wrote.
Status unknown_step(std::string_view found) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("'{}' is no sampling step; there are {}", found.substr(0, 40), known_steps())};
}

Status too_many_steps() {
  return {ErrorCode::kInvalidArgument, fmt::format("a sampling chain has at most {} steps", kMaxSamplerSteps)};
}

// " from 0 to 1"; a limit that only the type sets is left out unless `value` is beyond it.
std::string range_of(const SamplerSetting& setting, double value) {
  const bool is_whole = std::holds_alternative<int32_t Options::*>(setting.member);
  const bool has_min = setting.min > -kFloatMax || value < setting.min;
  const bool has_max = setting.max < (is_whole ? kIntMax : kFloatMax) || value > setting.max;
  return has_min && has_max ? fmt::format(" from {} to {}", setting.min, setting.max)
         : has_min          ? fmt::format(" of at least {}", setting.min)
                            : std::string();
}

}  // namespace

std::vector<SamplerStep> SamplerOptions::default_chain() {
  std::vector<SamplerStep> chain;
  for (const StepNames& s : kSteps) {
    chain.push_back(s.step);
    if (s.step == SamplerStep::kTemperature) {
      break;
    }
  }
  return chain;
}

std::span<const SamplerSetting> sampler_settings() {
  return kSettings;
}

const SamplerSetting* find_sampler_setting(std::string_view name) {
  const auto* found = std::ranges::find(kSettings, name, &SamplerSetting::name);
  return found == std::end(kSettings) ? nullptr : found;
}

Status set_sampler_option(SamplerOptions& options, const SamplerSetting& setting, double value) {
  const bool whole = std::holds_alternative<int32_t SamplerOptions::*>(setting.member);
  // A caller's float may be the limit rounded up.
  const double max = whole ? setting.max : std::max(setting.max, static_cast<double>(static_cast<float>(setting.max)));
  if (!(value >= setting.min && value <= max) || (whole && value != std::trunc(value))) {
    return {ErrorCode::kInvalidArgument, fmt::format("{} is {}; it is a {}{}", setting.name, value,
                                                     whole ? "whole number" : "number", range_of(setting, value))};
  }
  if (whole) {
    options.*std::get<int32_t SamplerOptions::*>(setting.member) = static_cast<int32_t>(value);
  } else {
    options.*std::get<float SamplerOptions::*>(setting.member) = static_cast<float>(value);
  }
  return {};
}

double get_sampler_option(const SamplerOptions& options, const SamplerSetting& setting) {
  return std::visit([&](auto member) { return static_cast<double>(options.*member); }, setting.member);
}

std::string_view sampler_step_name(SamplerStep step) {
  return names_of(step).name;
}

char sampler_step_letter(SamplerStep step) {
  return names_of(step).letter;
}

Result<std::vector<SamplerStep>> parse_sampler_names(std::string_view text) {
  std::vector<SamplerStep> chain;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    const auto* found =
        std::ranges::find_if(kSteps, [&](const StepNames& s) { return s.name == name || has_word(s.others, name); });
    if (found == std::end(kSteps)) {
      return unknown_step(name);
    }
    if (chain.size() == kMaxSamplerSteps) {
      return too_many_steps();
    }
    chain.push_back(found->step);
    begin = end + 1;
  }
  return chain;
}

Result<std::vector<SamplerStep>> parse_sampler_letters(std::string_view letters) {
  std::vector<SamplerStep> chain;
  for (size_t i = 0; i < letters.size(); ++i) {
    const auto* found = std::ranges::find(kSteps, letters[i], &StepNames::letter);
    if (found == std::end(kSteps)) {
      return unknown_step(letters.substr(i, 1));
    }
    if (chain.size() == kMaxSamplerSteps) {
      return too_many_steps();
    }
    chain.push_back(found->step);
  }
  return chain;
}

Result<LogitBias> parse_logit_bias(std::string_view text) {
  LogitBias result;
  const char* end = text.data() + text.size();
  const auto [sign, id_error] = std::from_chars(text.data(), end, result.id);
  const bool has_sign = id_error == std::errc() && result.id >= 0 && sign != end && (*sign == '+' || *sign == '-');
  double bias = 0;
  // A second sign is no number to from_chars after '+', but it is after '-': "1--2".
  const bool signed_twice = has_sign && sign + 1 != end && (sign[1] == '-' || sign[1] == '+');
  if (has_sign && !signed_twice) {
    const auto [rest, bias_error] = std::from_chars(sign + 1, end, bias);
    if (bias_error == std::errc() && rest == end && !std::isnan(bias)) {
      constexpr auto kMax = static_cast<double>(std::numeric_limits<float>::max());
      bias = std::isinf(bias) ? bias : std::min(bias, kMax);
      result.bias = static_cast<float>(*sign == '-' ? -bias : bias);
      return result;
    }
  }
  return Status(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no logit bias; write TOKEN+BIAS or TOKEN-BIAS, such as 15043+1 or 2-inf",
                            text.substr(0, 40)));
}

}  // namespace tessera

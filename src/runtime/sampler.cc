#include "runtime/sampler.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "runtime/sampler_filters.h"
#include "runtime/sampler_infill.h"

namespace tessera {
namespace {

// 32 bits, so that JSON readers which keep numbers as doubles repeat a generation from the seed they were told.
uint64_t random_seed() {
  std::random_device device;
  const auto seed = static_cast<uint32_t>(device());
  return seed == kRandomSeed ? 0 : seed;
}

bool uses_penalties(const SamplerOptions& o) {
  return o.repeat_last_n != 0 && RepetitionPenalties{o.repeat_penalty, o.frequency_penalty, o.presence_penalty}.any();
}

DryPenalty dry_of(const SamplerOptions& o) {
  return {o.dry_multiplier, o.dry_base, o.dry_allowed_length, o.dry_penalty_last_n};
}

bool is_neutral(SamplerStep step, const SamplerOptions& o) {
  switch (step) {
    case SamplerStep::kPenalties: return !uses_penalties(o);
    case SamplerStep::kDry: return !dry_of(o).any();
    case SamplerStep::kTopNSigma: return !(o.top_n_sigma > 0);
    case SamplerStep::kTopK: return o.top_k <= 0;
    case SamplerStep::kTypicalP: return !(o.typical_p < 1);
    case SamplerStep::kTopP: return !(o.top_p < 1);
    case SamplerStep::kMinP: return !(o.min_p > 0);
    case SamplerStep::kXtc: return !(o.xtc_probability > 0) || !(o.xtc_threshold <= 0.5F);
    case SamplerStep::kTemperature: return o.temperature == 1 && !(o.dynatemp_range > 0);
    case SamplerStep::kInfill: return false;
    case SamplerStep::kAdaptiveP: return !(o.adaptive_target >= 0);
  }
  return true;
}

// Steps that keep the best, whatever else they drop.
bool keeps_best(SamplerStep step) {
  return step == SamplerStep::kTopNSigma || step == SamplerStep::kTopK || step == SamplerStep::kTopP ||
         step == SamplerStep::kMinP;
}

// The steps that have an effect. At temperature 0 that means: none after it, and none before it that only thins out
// what the choice of the best need not look at.
std::vector<SamplerStep> effective_steps(const SamplerOptions& o) {
  if (o.mirostat != 0) {
    return {SamplerStep::kTemperature};
  }
  std::vector<SamplerStep> steps;
  for (const SamplerStep step : o.samplers) {
    if (is_neutral(step, o) || step == SamplerStep::kAdaptiveP) {
      continue;
    }
    steps.push_back(step);
    if (step == SamplerStep::kTemperature && !(o.temperature > 0) && !(o.dynatemp_range > 0)) {
      const auto may_drop_best = [](SamplerStep s) {
        return s == SamplerStep::kXtc || s == SamplerStep::kTypicalP || s == SamplerStep::kInfill;
      };
      if (std::ranges::none_of(steps, may_drop_best)) {
        std::erase_if(steps, keeps_best);
      }
      break;
    }
  }
  return steps;
}

bool has_step(const SamplerOptions& o, SamplerStep step) {
  return o.mirostat == 0 && std::ranges::find(o.samplers, step) != o.samplers.end() && !is_neutral(step, o);
}

}  // namespace

int32_t argmax(std::span<const float> logits) {
  return largest_logit(logits);
}

bool Sampler::uses_dry(const SamplerOptions& options) {
  return has_step(options, SamplerStep::kDry);
}

bool Sampler::uses_infill(const SamplerOptions& options) {
  return has_step(options, SamplerStep::kInfill);
}

Sampler::Sampler(const SamplerOptions& options, DryBreakers breakers, std::optional<GrammarMatcher> grammar,
                 const Tokenizer* tokenizer)
    : options_(options),
      biases_(options.logit_bias),
      penalties_{options.repeat_penalty, options.frequency_penalty, options.presence_penalty},
      dry_(dry_of(options)),
      breakers_(std::move(breakers)),
      tokenizer_(tokenizer),
      grammar_(std::move(grammar)),
      steps_(effective_steps(options)),
      keeps_history_(uses_dry(options) || has_step(options, SamplerStep::kPenalties)),
      window_(has_step(options, SamplerStep::kPenalties) ? options.repeat_last_n : 0),
      seed_(options.seed == kRandomSeed ? random_seed() : options.seed),
      state_(seed_) {
  if (options.mirostat != 0) {
    mirostat_.emplace(options.mirostat, static_cast<double>(options.mirostat_tau),
                      static_cast<double>(options.mirostat_eta));
  }
  if (has_step(options, SamplerStep::kAdaptiveP)) {
    adaptive_.emplace(static_cast<double>(options.adaptive_target), static_cast<double>(options.adaptive_decay));
  }
}

void Sampler::accept(std::span<const int32_t> tokens) {
  for (size_t i = 0; grammar_ && drew_ && i < tokens.size(); ++i) {
    grammar_->accept(tokens[i]);
  }
  if (!keeps_history_) {
    return;
  }
  for (const int32_t token : tokens) {
    history_.push_back(token);
    window_.advance(history_);
  }
}

Sampler::GrammarState Sampler::grammar_state() const {
  if (!grammar_) {
    return masks_ == nullptr ? GrammarState::kNone : GrammarState::kIncomplete;
  }
  if (too_complex_) {
    return GrammarState::kTooComplex;
  }
  return grammar_->is_dead()   ? GrammarState::kBroken
         : grammar_->may_end() ? GrammarState::kComplete
                               : GrammarState::kIncomplete;
}

int32_t Sampler::sample(std::span<const float> logits) {
  drew_ = true;
  const double total = run_chain(logits);
  const double target = draw() * total;
  double sum = 0;
  const TokenProbability* chosen = nullptr;
  for (const TokenProbability& c : candidates_.list()) {
    if (c.probability > 0) {
      chosen = &c;  // also when rounding leaves the whole sum below the target
    }
    sum += c.probability;
    if (sum > target) {
      break;
    }
  }
  if (chosen == nullptr) {
    return kNoToken;
  }
  if (mirostat_) {
    mirostat_->learn(chosen->probability / total);
  }
  if (adaptive_) {
    adaptive_->learn(static_cast<size_t>(chosen - candidates_.list().data()));
  }
  return chosen->id;
}

void Sampler::force(int32_t id) {
  begin_grammar();
  drew_ = true;
  accept({&id, 1});
}

void Sampler::begin_grammar() {
  if (masks_ != nullptr) {
    grammar_.emplace(std::exchange(masks_, nullptr));
  }
}

std::span<const TokenProbability> Sampler::distribution(std::span<const float> logits) {
  const uint64_t state = state_;
  const double total = run_chain(logits);
  state_ = state;
  for (TokenProbability& c : candidates_.list()) {
    c.probability /= total;
  }
  return candidates_.list();
}

// Leaves the candidates weighed. Result: the sum of their weights.
double Sampler::run_chain(std::span<const float> logits) {
  candidates_.reset(logits);
  begin_grammar();
  if (grammar_) {
    const Result<const TokenMask*> mask = grammar_->mask();
    too_complex_ = !mask.ok();
    if (mask.ok()) {
      candidates_.keep_allowed(**mask);
    } else {
      candidates_.keep_allowed({});
    }
  }
  biases_.apply(candidates_);
  for (const SamplerStep step : steps_) {
    run_step(step, logits);
  }
  if (mirostat_) {
    mirostat_->filter(candidates_, logits.size());
  }
  candidates_.weigh();
  if (adaptive_) {
    adaptive_->reweigh(candidates_);
  }
  return total_weight(candidates_.list());
}

// The token that ends a turn or a text, if nothing forbids it.
std::optional<int32_t> Sampler::end_token(std::span<const float> logits) const {
  constexpr float kBanned = -std::numeric_limits<float>::infinity();
  const std::optional<int32_t> id = tokenizer_->eot() ? tokenizer_->eot() : tokenizer_->eos();
  const auto bans = [&](const LogitBias& bias) { return bias.id == *id && bias.bias == kBanned; };
  const bool is_allowed = id && static_cast<size_t>(*id) < logits.size() &&
                          logits[static_cast<size_t>(*id)] > kBanned &&
                          std::ranges::none_of(options_.logit_bias, bans) && (!grammar_ || grammar_->may_end());
  return is_allowed ? id : std::nullopt;
}

void Sampler::run_step(SamplerStep step, std::span<const float> logits) {
  const SamplerOptions& o = options_;
  const auto min_keep = static_cast<size_t>(std::max(o.min_keep, 0));
  switch (step) {
    case SamplerStep::kPenalties: penalties_.apply(candidates_, window_); break;
    case SamplerStep::kDry: dry_.apply(candidates_, history_, breakers_, scratch_); break;
    case SamplerStep::kTopNSigma: keep_top_n_sigma(candidates_, static_cast<double>(o.top_n_sigma)); break;
    case SamplerStep::kTopK: keep_top_k(candidates_, o.top_k); break;
    case SamplerStep::kTypicalP: keep_typical(candidates_, static_cast<double>(o.typical_p), min_keep); break;
    case SamplerStep::kTopP: keep_top_p(candidates_, static_cast<double>(o.top_p), min_keep); break;
    case SamplerStep::kMinP: keep_min_p(candidates_, static_cast<double>(o.min_p), min_keep); break;
    case SamplerStep::kXtc:
      if (draw() < static_cast<double>(o.xtc_probability)) {
        exclude_top_choices(candidates_, static_cast<double>(o.xtc_threshold), min_keep);
      }
      break;
    case SamplerStep::kTemperature:
      apply_dynamic_temperature(candidates_, static_cast<double>(o.temperature),
                                mirostat_ ? 0 : static_cast<double>(o.dynatemp_range),
                                static_cast<double>(o.dynatemp_exponent));
      break;
    case SamplerStep::kInfill:
      if (tokenizer_ != nullptr) {
        keep_infill(candidates_, *tokenizer_, end_token(logits));
      }
      break;
    case SamplerStep::kAdaptiveP: break;  // behind the chain
  }
}

// Uniform in [0, 1), from the upper 53 bits.
double Sampler::draw() {
  state_ += 0x9E3779B97F4A7C15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

}  // namespace tessera

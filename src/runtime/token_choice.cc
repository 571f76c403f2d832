#include "runtime/token_choice.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "runtime/sampler_grammar.h"

namespace tessera {
namespace {

float log_of(double probability) {
  return probability > 0 ? static_cast<float>(std::log(probability)) : std::numeric_limits<float>::lowest();
}

}  // namespace

Result<Sampler> SamplerMaker::make(SamplerOptions options, bool ignore_eos) {
  constexpr float kBanned = -std::numeric_limits<float>::infinity();
  const Tokenizer& tokenizer = model_.tokenizer();
  for (const int64_t id : tokenizer.suppress_tokens()) {
    options.logit_bias.push_back({static_cast<int32_t>(id), kBanned});
  }
  if (ignore_eos) {
    for (const int32_t id : tokenizer.end_of_generation_ids()) {
      options.logit_bias.push_back({id, kBanned});
    }
  }
  if (Sampler::uses_dry(options) && breaker_texts_ != options.dry_sequence_breakers) {
    ASSIGN_OR_RETURN(breakers_, DryBreakers::create(tokenizer, options.dry_sequence_breakers));
    breaker_texts_ = options.dry_sequence_breakers;
  }
  Sampler sampler(options, Sampler::uses_dry(options) ? breakers_ : DryBreakers(), std::nullopt, &tokenizer);
  if (!options.grammar.empty() || !options.json_schema.empty()) {
    ASSIGN_OR_RETURN(std::shared_ptr<GrammarMasks> masks, grammar(options));
    sampler.set_grammar(std::move(masks));
  }
  return sampler;
}

Result<std::shared_ptr<GrammarMasks>> SamplerMaker::grammar(const SamplerOptions& options) {
  std::string text = options.grammar + '\0' + options.json_schema;
  const auto found = std::ranges::find(grammars_, text, &KeptGrammar::text);
  if (found != grammars_.end()) {
    std::rotate(grammars_.begin(), found, found + 1);
    return grammars_.front().masks;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<GrammarMasks> masks,
                   sampler_grammar(options, model_.tokenizer(), model_.token_trie()));
  grammars_.insert(grammars_.begin(), {std::move(text), masks});
  grammars_.resize(std::min(grammars_.size(), kGrammarsKept));
  return masks;
}

Result<int32_t> choose_token(Sampler& sampler, std::span<const float> logits, int64_t n_tokens) {
  const int32_t id = sampler.sample(logits);
  if (id != kNoToken) {
    sampler.accept({&id, 1});
    return id;
  }
  switch (sampler.grammar_state()) {
    case Sampler::GrammarState::kComplete: return kNoToken;
    case Sampler::GrammarState::kTooComplex:
      return Status(ErrorCode::kUnsupported,
                    fmt::format("after {} tokens the grammar has too many readings of the text, or is nested too "
                                "deeply; where a text fits it in several ways, leave one",
                                n_tokens));
    case Sampler::GrammarState::kIncomplete:
    case Sampler::GrammarState::kBroken:
      return Status(ErrorCode::kInvalidData,
                    fmt::format("nothing to choose after {} tokens: the grammar allows no token of the model here, or "
                                "--logit-bias bans those; does the grammar ask for text that the vocabulary lacks?",
                                n_tokens));
    case Sampler::GrammarState::kNone: break;
  }
  return Status(ErrorCode::kInvalidData,
                fmt::format("nothing to choose after {} tokens: every logit is banned or no number; if --logit-bias "
                            "bans no more than it should, the model file is damaged",
                            n_tokens));
}

TokenProbs logit_probs(std::span<const float> logits, int32_t chosen, int32_t n_top) {
  const int32_t best = argmax(logits);
  TokenProbs probs;
  probs.chosen = std::numeric_limits<float>::lowest();
  if (best == kNoToken) {
    return probs;
  }
  const auto logit = [&](size_t id) { return std::min(logits[id], std::numeric_limits<float>::max()); };
  const double largest = static_cast<double>(logit(static_cast<size_t>(best)));
  double total = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    const double weight = std::exp(static_cast<double>(logit(id)) - largest);
    total += weight > 0 ? weight : 0;  // NaN counts for nothing
  }
  const auto logprob = [&](float x) {
    const double p = static_cast<double>(x) - largest - std::log(total);
    return p > static_cast<double>(std::numeric_limits<float>::lowest()) ? static_cast<float>(p)
                                                                         : std::numeric_limits<float>::lowest();
  };
  probs.chosen = logprob(logit(static_cast<size_t>(chosen)));
  if (n_top > 0) {
    Candidates candidates;
    candidates.reset(logits);
    candidates.keep_best(static_cast<size_t>(n_top));
    const std::vector<TokenProbability>& list = candidates.list();
    candidates.sort_first(list.size());
    for (const TokenProbability& c : list) {
      probs.top.push_back({c.id, logprob(c.logit)});
    }
  }
  return probs;
}

TokenProbs drawn_probs(std::span<const TokenProbability> distribution, int32_t chosen, int32_t n_top) {
  TokenProbs probs;
  const auto found = std::ranges::find(distribution, chosen, &TokenProbability::id);
  probs.chosen = log_of(found == distribution.end() ? 0 : found->probability);
  std::vector<TokenProbability> list(distribution.begin(), distribution.end());
  const size_t n = std::min(static_cast<size_t>(n_top), list.size());
  std::ranges::partial_sort(list, list.begin() + static_cast<std::ptrdiff_t>(n), [](const auto& a, const auto& b) {
    return a.probability > b.probability || (a.probability == b.probability && a.id < b.id);
  });
  for (size_t i = 0; i < n; ++i) {
    probs.top.push_back({list[i].id, log_of(list[i].probability)});
  }
  return probs;
}

}  // namespace tessera

#pragma once
// What every generation does with logits and with the tokens chosen from them, whoever runs it: the sampler with the
// tokens that must not be chosen, one choice, its text, its probability.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/engine.h"
#include "runtime/grammar/matcher.h"
#include "runtime/sampler.h"
#include "runtime/stop.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

/// Makes samplers for one model and keeps what they have in common: sequence breakers, which cost a look at every
/// token, and the grammars used last, with the masks found so far. One thread at a time.
class SamplerMaker {
 public:
  /// Grammars that are kept: those of an agent's requests and a few others. Each may grow to
  /// GrammarMasks::kMaxMaskBytes.
  static constexpr size_t kGrammarsKept = 8;

  /// The model must outlive this.
  explicit SamplerMaker(const Model& model) : model_(model) {}

  /// A sampler that chooses none of the tokens that the model's file bans, nor, with ignore_eos, one that ends a
  /// generation. Samplers of one maker share grammars, so all that have one are used by one thread at a time; it may be
  /// another than that of make(). Errors: those of DryBreakers::create and sampler_grammar(). REQUIRES: the model has a
  /// vocabulary.
  Result<Sampler> make(SamplerOptions options, bool ignore_eos);

 private:
  struct KeptGrammar {
    std::string text;
    std::shared_ptr<GrammarMasks> masks;
  };
  Result<std::shared_ptr<GrammarMasks>> grammar(const SamplerOptions& options);

  const Model& model_;
  std::vector<std::string> breaker_texts_;  // of breakers_
  DryBreakers breakers_;
  std::vector<KeptGrammar> grammars_;  // last used first
};

/// Draws a token and accept()s it; kNoToken: the grammar's text is complete, and nothing can follow. n_tokens: how many
/// came before, for the message. Errors: kInvalidData when there is nothing to choose; kUnsupported when the grammar is
/// too ambiguous.
Result<int32_t> choose_token(Sampler& sampler, std::span<const float> logits, int64_t n_tokens);

/// Turns tokens into text and cuts it at stop words.
class TokenText {
 public:
  TokenText(const Tokenizer& tokenizer, const std::vector<std::string>& stop_words, bool show_special)
      : decoder_(tokenizer, show_special), words_(stop_words) {}

  /// The text that is certain to lie before any stop word, in whole characters; often empty.
  std::string push(int32_t id) { return words_.push(decoder_.push(id)); }
  /// What a stop word has not taken; a character left unfinished is dropped.
  std::string finish() { return words_.flush(); }
  /// The stop word that was found, or "".
  [[nodiscard]] const std::string& stop_word() const { return words_.word(); }

 private:
  StreamDecoder decoder_;
  StopWords words_;
};

struct TokenProb {
  int32_t id = 0;
  float logprob = 0;  // natural logarithm; the lowest float for what cannot be chosen
};

struct TokenProbs {
  float chosen = 0;            // logprob
  std::vector<TokenProb> top;  // most probable first; ties: the lowest id
};

/// Of the model's own distribution. logits: [n_vocab] f32. REQUIRES: 0 <= chosen < n_vocab, n_top >= 0.
TokenProbs logit_probs(std::span<const float> logits, int32_t chosen, int32_t n_top);
/// Of what a sampler draws from (Sampler::distribution()).
TokenProbs drawn_probs(std::span<const TokenProbability> distribution, int32_t chosen, int32_t n_top);

}  // namespace tessera

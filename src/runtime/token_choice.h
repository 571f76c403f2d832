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

/// Makes samplers for one model and keeps what the last one was made with: its sequence breakers, which cost a look at
/// every token, and its grammar with the masks found so far. One thread at a time.
class SamplerMaker {
 public:
  /// The model must outlive this. shares_grammars: samplers of one grammar share its masks, and are then used by one
  /// thread at a time.
  SamplerMaker(const Model& model, bool shares_grammars) : model_(model), shares_grammars_(shares_grammars) {}

  /// A sampler that chooses none of the tokens that the model's file bans, nor, with ignore_eos, one that ends a
  /// generation. Errors: those of DryBreakers::create and sampler_grammar(). REQUIRES: the model has a vocabulary.
  Result<Sampler> make(SamplerOptions options, bool ignore_eos);

 private:
  Result<std::optional<GrammarMatcher>> make_grammar(const SamplerOptions& options);

  const Model& model_;
  const bool shares_grammars_;
  std::vector<std::string> breaker_texts_;  // of breakers_
  DryBreakers breakers_;
  std::string grammar_text_;               // of grammar_
  std::shared_ptr<GrammarMasks> grammar_;  // where samplers share it
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

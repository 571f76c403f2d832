#pragma once
// Chooses the next token from logits: the grammar's mask, logit bias, then a chain of steps, then one random draw.
//
// The chain's order and its defaults are the reference engine's (llama.cpp): penalties, DRY, top-n-sigma, top-k,
// typical, top-p, min-p, XTC, temperature; with mirostat only temperature and mirostat; infill and adaptive-p where a
// chain names them. Steps at their neutral value
// cost nothing. For one seed and equal logits the tokens are the same on every machine: the random numbers (SplitMix64;
// Steele, Lea, Flood 2014) and the elementary functions are computed here, without the C library, and ties go to the
// lowest id.
//
// Unlike the reference: top-n-sigma drops what it excludes (there it stays in the list with probability 0, where top-k
// and the dynamic temperature still count it), and one stream of random numbers serves XTC and the draw.
//
// Not thread-safe: one sampler per generation. It keeps its buffers from token to token.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/grammar/matcher.h"
#include "runtime/sampler_adaptive.h"
#include "runtime/sampler_candidates.h"
#include "runtime/sampler_dry.h"
#include "runtime/sampler_mirostat.h"
#include "runtime/sampler_options.h"
#include "runtime/sampler_penalties.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

/// What a sampler returns when there is nothing to choose.
inline constexpr int32_t kNoToken = -1;

/// The largest logit's id, the lowest among equals; kNoToken when all are NaN or -inf.
[[nodiscard]] int32_t argmax(std::span<const float> logits);

class Sampler {
 public:
  /// breakers: those of options.dry_sequence_breakers in the model's vocabulary; looked at only where DRY is on.
  /// grammar: at its beginning, of options.grammar or json_schema (sampler_grammar.h); without one those texts
  /// have no effect. It is moved on as tokens are accepted. tokenizer: of the step infill, which does nothing without;
  /// must outlive this.
  explicit Sampler(const SamplerOptions& options, DryBreakers breakers = {},
                   std::optional<GrammarMatcher> grammar = std::nullopt, const Tokenizer* tokenizer = nullptr);

  /// Gives a sampler without a grammar one, which begins with the first token that is chosen. The masks are touched
  /// from then on only, by the thread that samples.
  void set_grammar(std::shared_ptr<GrammarMasks> masks) { masks_ = std::move(masks); }

  /// Adds to the history that penalties and DRY look at: the prompt first, then every token that was chosen. From the
  /// first sample() on the grammar follows these tokens, too; what came before was the prompt.
  void accept(std::span<const int32_t> tokens);

  /// Draws a token; does not accept() it. logits: [n_vocab] f32. NaN and -inf are never chosen; +inf counts as the
  /// largest float. Result: an id, or kNoToken when nothing can be chosen: a damaged model, every token banned, or
  /// none that the grammar allows (see grammar_state()).
  /// Cost: one pass over the logits while top_k is small.
  int32_t sample(std::span<const float> logits);

  /// As if id had been drawn and accepted, whatever the logits and the grammar say.
  void force(int32_t id);

  /// What sample() would draw from next: probabilities sum to 1, in no particular order but the same each time (best
  /// first if top_k or top_p limit them and neither typical_p nor XTC comes after). Draws and learns nothing. Valid
  /// until the next call.
  std::span<const TokenProbability> distribution(std::span<const float> logits);

  enum class GrammarState : uint8_t {
    kNone,        // no grammar
    kIncomplete,  // the text is the beginning of one that fits
    kComplete,    // the text fits as it is
    kBroken,      // a token was accepted that does not fit
    kTooComplex,  // a limit of the grammar was met (GrammarMatcher::mask)
  };
  /// How the tokens accepted so far stand to the grammar.
  [[nodiscard]] GrammarState grammar_state() const;

  /// The seed in use; never kRandomSeed.
  [[nodiscard]] uint64_t seed() const { return seed_; }
  /// Whether DRY is on, and the constructor needs its breakers.
  [[nodiscard]] static bool uses_dry(const SamplerOptions& options);
  /// Whether infill is on, and it needs a tokenizer.
  [[nodiscard]] static bool uses_infill(const SamplerOptions& options);

 private:
  void begin_grammar();
  double run_chain(std::span<const float> logits);
  void run_step(SamplerStep step, std::span<const float> logits);
  [[nodiscard]] std::optional<int32_t> end_token(std::span<const float> logits) const;
  double draw();

  SamplerOptions options_;
  LogitBiases biases_;
  RepetitionPenalties penalties_;
  DryPenalty dry_;
  DryBreakers breakers_;
  std::optional<Mirostat> mirostat_;
  std::optional<AdaptiveP> adaptive_;
  const Tokenizer* tokenizer_;
  std::shared_ptr<GrammarMasks> masks_;  // that grammar_ is made of when it begins
  std::optional<GrammarMatcher> grammar_;
  bool too_complex_ = false;        // a limit of the grammar was met
  bool drew_ = false;               // sample() was called
  std::vector<SamplerStep> steps_;  // those that do something
  bool keeps_history_ = false;
  std::vector<int32_t> history_;
  TokenWindow window_;
  uint64_t seed_ = 0;
  uint64_t state_ = 0;
  Candidates candidates_;
  std::vector<int32_t> scratch_;
};

}  // namespace tessera

#pragma once
// Generation: from a prompt to text, token by token, in one sequence of a context.
//
// A Session remembers which tokens its sequence holds, so that a prompt that begins as the last one ended is not read
// again: only what differs is decoded. One thread at a time per session; sessions of one context must take turns.
//
// A full context may be shifted: the tokens that remain move to other positions, so their keys and values are no longer
// theirs, and all behind the kept ones are read again. What follows is therefore exactly what a context would give that
// had been handed those tokens alone, under every placement.

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/context.h"
#include "runtime/sampler.h"
#include "runtime/stop.h"
#include "runtime/token_choice.h"
#include "tokenizer/template/chat_template.h"

namespace tessera {

/// Token ids of a rendered prompt: special tokens only where the template wrote them, begin and end tokens as the
/// model's metadata asks, but not a second begin token where the template has written one.
std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, const RenderedPrompt& prompt);

/// Tokens at the front of `prompt` that context shifts never drop: n_keep of them, and a begin token before these; all
/// where n_keep is negative or more than there are.
size_t kept_tokens(const Tokenizer& tokenizer, std::span<const int32_t> prompt, int64_t n_keep);

/// A context shift: the tokens without the first half, rounded down, of those behind the first n_keep. REQUIRES:
/// n_keep <= tokens.size().
std::vector<int32_t> shift_tokens(std::span<const int32_t> tokens, size_t n_keep);

/// Whether a prompt fits, and leaves a position for an answer if there is to be one. Errors: kInvalidArgument (empty),
/// kCacheFull (says both numbers).
Status check_prompt(size_t n_tokens, int64_t n_ctx, bool has_answer = true);

/// As max_tokens: until the context is full, whether or not it could be shifted.
inline constexpr int64_t kUntilFull = -2;

struct GenerateOptions {
  int64_t max_tokens = -1;     // negative: until the model ends or the context is full
  bool ignore_eos = false;     // end-of-generation tokens are never chosen
  bool context_shift = false;  // a full context is shifted and goes on, unless max_tokens is kUntilFull
  int64_t n_keep = 0;          // of kept_tokens()
  std::vector<std::string> stop_words;
  SamplerOptions sampler;
};

struct GenerateTimings {
  int64_t cache_n = 0;   // prompt tokens that the sequence held already
  int64_t prompt_n = 0;  // prompt tokens decoded
  double prompt_ms = 0;
  int64_t predicted_n = 0;  // tokens chosen
  double predicted_ms = 0;  // from the prompt's end to the last one
  double total_ms = 0;      // of the whole call, hooks included
};

struct Generation {
  std::string text;             // without stop word, special tokens, and a character left unfinished at the end
  std::vector<int32_t> tokens;  // every token chosen, an end-of-generation token included
  StopReason stop = StopReason::kNone;
  std::string stop_word;  // kWord: which
  uint64_t seed = 0;      // of the sampler
  int64_t n_shifts = 0;   // times that the context was shifted
  GenerateTimings timings;
};

/// What a caller hears and says while a generation runs.
struct GenerateHooks {
  /// Receives the text in pieces, whole UTF-8 characters each. Called from the thread that generates; an error ends the
  /// generation. May be empty.
  std::function<Status(std::string_view text)> on_text;
  /// Once true, the generation ends with kCancelled: between two micro-batches. May be null.
  const std::atomic<bool>* cancelled = nullptr;
  /// Called before the prompt is read, with how many of its tokens the sequence lacks, and how many before these it
  /// has. Its time is none of the generation's; an error ends the generation. May be empty.
  std::function<Status(int64_t n_lacking, int64_t n_cached)> on_begin = {};
  /// Hears how many of the prompt's tokens were given to the devices: before each micro-batch, from the model's loop
  /// thread, and with equal numbers at the end. May be empty.
  std::function<void(int64_t n_given, int64_t n_prompt)> on_progress = {};
  /// Called once the sequence holds the whole prompt and nothing else; its time is none of the generation's, and an
  /// error ends the generation. May be empty.
  std::function<Status()> on_prompt = {};
};

/// Whether a model can generate with these options at all. Errors: those of sampler_grammar() and DryBreakers::create.
/// REQUIRES: the model has a tokenizer.
Status check_generation(const Model& model, const GenerateOptions& options);

class Session {
 public:
  /// Begins with what the sequence holds, which must not be used by others. REQUIRES: 0 <= seq < the context's
  /// n_seq_max; context outlives this.
  explicit Session(Context& context, int32_t seq = 0)
      : context_(context), seq_(seq), held_(context.tokens(seq)), samplers_(context.model()) {}

  /// Generates after prompt. Result: also what a cancelled generation has brought so far. With a grammar in the options
  /// the text follows it: the model may end only where the grammar does, and where it does and nothing can follow the
  /// generation ends with kEos or, without an end token to choose, kGrammar.
  /// Errors: kInvalidArgument (empty prompt, token outside the vocabulary); kCacheFull when the prompt leaves no
  /// position for a token (says how many there are); kInvalidData when the model's logits are no numbers, or its
  /// vocabulary lacks what the grammar asks for; those of sampler_grammar(), DryBreakers::create and Context::decode.
  /// After an error the sequence may hold any beginning of prompt and answer; the next call sorts it out.
  Result<Generation> generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                              const GenerateHooks& hooks = {});

  /// What the sequence holds.
  [[nodiscard]] const std::vector<int32_t>& tokens() const { return held_; }

  /// Forgets everything.
  Status clear();

 private:
  Status keep_common(std::span<const int32_t> prompt);
  Result<bool> read(std::span<const int32_t> tokens, const GenerateHooks& hooks);
  Result<StopReason> append(int32_t id, const GenerateHooks& hooks);
  Result<StopReason> shift_and_append(int32_t id, size_t n_keep, const GenerateHooks& hooks);

  Context& context_;
  int32_t seq_;
  std::vector<int32_t> held_;  // what the sequence holds
  SamplerMaker samplers_;
};

}  // namespace tessera

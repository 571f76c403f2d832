#pragma once
// Generation: from a prompt to text, token by token, in one sequence of a context.
//
// A Session remembers which tokens its sequence holds, so that a prompt that begins as the last one ended is not read
// again: only what differs is decoded. One thread at a time per session; sessions of one context must take turns.

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
#include "tokenizer/template/chat_template.h"

namespace tessera {

/// Token ids of a rendered prompt: special tokens only where the template wrote them, begin and end tokens as the
/// model's metadata asks, but not a second begin token where the template has written one.
std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, const RenderedPrompt& prompt);

struct GenerateOptions {
  int64_t max_tokens = -1;  // negative: until the model ends or the context is full
  bool ignore_eos = false;  // end-of-generation tokens are never chosen
  std::vector<std::string> stop_words;
  SamplerOptions sampler;
};

struct GenerateTimings {
  int64_t cache_n = 0;   // prompt tokens that the sequence held already
  int64_t prompt_n = 0;  // prompt tokens decoded
  double prompt_ms = 0;
  int64_t predicted_n = 0;  // tokens chosen
  double predicted_ms = 0;  // from the prompt's end to the last one
};

struct Generation {
  std::string text;             // without stop word, special tokens, and a character left unfinished at the end
  std::vector<int32_t> tokens;  // every token chosen, an end-of-generation token included
  StopReason stop = StopReason::kNone;
  std::string stop_word;  // kWord: which
  uint64_t seed = 0;      // of the sampler
  GenerateTimings timings;
};

/// What a caller hears and says while a generation runs.
struct GenerateHooks {
  /// Receives the text in pieces, whole UTF-8 characters each. Called from the thread that generates. May be empty.
  std::function<void(std::string_view text)> on_text;
  /// Once true, the generation ends with kCancelled: between two decodes. May be null.
  const std::atomic<bool>* cancelled = nullptr;
};

class Session {
 public:
  /// The sequence must not be used by others. REQUIRES: 0 <= seq < the context's n_seq_max; context outlives this.
  explicit Session(Context& context, int32_t seq = 0) : context_(context), seq_(seq) {}

  /// Generates after prompt. Result: also what a cancelled generation has brought so far.
  /// Errors: kInvalidArgument (empty prompt, token outside the vocabulary); kCacheFull when the prompt leaves no
  /// position for a token (says how many there are); kInvalidData when the model's logits are no numbers; those of
  /// DryBreakers::create and Context::decode. After an error the sequence may hold any beginning of the prompt; the
  /// next call sorts it out.
  Result<Generation> generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                              const GenerateHooks& hooks = {});

  /// What the sequence holds.
  [[nodiscard]] const std::vector<int32_t>& tokens() const { return held_; }

  /// Forgets everything.
  Status clear();

 private:
  Status keep_common(std::span<const int32_t> prompt);
  Result<bool> read_prompt(std::span<const int32_t> prompt, const GenerateHooks& hooks);
  Result<int32_t> choose(Sampler& sampler);

  Context& context_;
  int32_t seq_;
  std::vector<int32_t> held_;  // what the sequence holds
};

}  // namespace tessera

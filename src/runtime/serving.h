#pragma once
// Serving: many requests at once over one context, as a server needs them.
//
// submit() hands over a request with a sink; a thread of Serving's own plans steps (scheduler.h), decodes them, chooses
// tokens and calls the sinks. Requests share the context's sequences ("slots") and each other's prefixes: a prompt that
// begins as some slot does is read from where it differs. For n answers to one prompt submit it n times, with
// different seeds: it is read once.
//
// Independence: the tokens of a request, greedy or seeded, are those that it would get alone. Kernels compute a row
// from that row's operands, attention splits at fixed positions, and prompts of models with recurrent state, whose
// kernels take runs of a sequence's rows, are cut on a fixed grid. What does count for such models, in the last
// bits, is from where a prompt was read on (0, or a prefix that was still there): ServingOptions::batch_invariant
// rules that out, too, and costs what is read again.
//
// Threads: any thread may call anything. Sinks are called from the serving thread, one at a time, and from on_begin on
// until on_end, which comes exactly once for each request that submit() took; they must neither block nor throw,
// and may call submit() and cancel() only. Serving must outlive no sink: it lets go of it after on_end.

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "runtime/context.h"
#include "runtime/embedding.h"
#include "runtime/kept_prompts_options.h"
#include "runtime/reasoning_budget.h"
#include "runtime/sampler_options.h"
#include "runtime/serving_load.h"
#include "runtime/stop.h"
#include "runtime/token_choice.h"

namespace tessera {

/// Rules out tokens, as a grammar does. One per request; used from the serving thread only.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  /// Sets the logits of tokens that may not come next to minus infinity. logits: [n_vocab] f32. Errors end the request.
  virtual Status apply(std::span<float> logits) = 0;
  /// Hears of every token that was chosen, end-of-generation tokens included. Errors end the request.
  virtual Status accept(int32_t id) = 0;
};

struct ServingRequest {
  std::vector<int32_t> prompt;
  SamplerOptions sampling;
  int64_t max_tokens = -1;  // negative: until the model ends or the context is full
  int64_t max_ms = 0;       // above 0: ends with kLimit once so long has gone since the first token
  std::vector<std::string> stop;
  bool ignore_eos = false;           // end-of-generation tokens are never chosen
  bool show_special = false;         // the text has special tokens, too
  bool cache_prompt = true;          // use prefixes that slots hold
  bool wants_logprobs = false;       // of each token chosen
  int32_t n_probs = 0;               // and of so many best ones; above 0 implies wants_logprobs
  bool post_sampling_probs = false;  // what the sampler drew from, in place of the model's own distribution
  int32_t priority = 0;              // each level is worth ServingOptions::priority_ms of waiting; -100 to 100
  bool context_shift = false;   // a full context drops half of what is behind n_keep and goes on; so does a long prompt
  int64_t n_keep = 0;           // kept_tokens() of generate.h
  bool wants_progress = false;  // on_progress while the prompt is read
  int32_t slot = -1;            // the slot to use, whatever it holds; negative: any
  /// Lengths at which other prompts may part from this one (the end of its system message, say), ascending: models with
  /// recurrent state keep a snapshot there, models with windows a state in the cache. Others can part anywhere.
  std::vector<int64_t> branches = {};
  ReasoningLimit reasoning = {};
  std::shared_ptr<TokenConstraint> constraint = {};  // may be null
  /// Reads the prompt for its embedding and generates nothing (StopReason::kLimit): n_ctx tokens at most.
  std::optional<Pooling> pooling = {};
};

struct ServingToken {
  int32_t id = 0;
  std::string bytes;           // the token's own; may be part of a character
  float logprob = 0;           // with wants_logprobs
  std::vector<TokenProb> top;  // n_probs, most probable first
};

struct ServingTimings {
  double queue_ms = 0;        // from submit() to a slot
  int64_t cached_n = 0;       // prompt tokens that were there already
  int64_t prompt_n = 0;       // prompt tokens that were read
  double prompt_ms = 0;       // from a slot to the first token
  double first_token_ms = 0;  // from submit() to the first token; 0: none came
  int64_t predicted_n = 0;    // tokens chosen
  double predicted_ms = 0;    // from the first token to now
};

struct ServingEnd {
  StopReason stop = StopReason::kNone;  // kNone: an error, which status tells
  Status status;
  std::string stop_word;   // kWord: which
  int32_t slot = -1;       // -1: it never had one
  uint64_t seed = 0;       // of the sampler
  int64_t n_shifts = 0;    // of the context
  int64_t n_prompt = 0;    // tokens of the prompt as it was used
  bool truncated = false;  // the prompt was too long and lost its middle
  ServingTimings timings;
  /// Tokens that were chosen and not handed to on_text: of a stop word, without text, or the end of generation.
  std::vector<ServingToken> rest;
  std::vector<float> embedding;  // with ServingRequest::pooling: [n_rows, n_embd], not normalised
};

class ServingSink {
 public:
  virtual ~ServingSink() = default;
  /// The request has a slot. `cached` of `total` prompt tokens were there already.
  virtual void on_begin(int32_t slot, int64_t cached, int64_t total) { (void)slot, (void)cached, (void)total; }
  /// With wants_progress, after each step that read some of the prompt: `processed` of `total` tokens are there, of
  /// which `cached` were before.
  virtual void on_progress(int64_t cached, int64_t processed, int64_t total, double ms) {
    (void)cached, (void)processed, (void)total, (void)ms;
  }
  /// More text: valid UTF-8, never a part of a stop word; and the tokens that it comes from, each handed on once, also
  /// where the text of the last one is not complete. False: cancels.
  virtual bool on_text(std::string_view text, std::span<const ServingToken> tokens, const ServingTimings& timings) = 0;
  /// Nothing comes after this.
  virtual void on_end(const ServingEnd& end) = 0;
};

struct ServingOptions {
  int64_t n_queue = 256;               // requests that may wait for a slot
  int64_t prompt_tokens_per_step = 0;  // while others generate; 0: n_ubatch / 4. At least 64
  int64_t priority_ms = 10000;         // of waiting, for one level of priority
  bool batch_invariant = false;        // see the top; models without recurrent state are so anyway
  /// Prompts that must leave their slots are kept (kept_prompts.h), unless batch_invariant reads all anew anyway.
  KeptPromptsOptions cache = {};
  /// Called on the serving thread before each step is decoded; it may move the model meanwhile. What it returns holds
  /// from the next step on. May be empty.
  std::function<ReadingPace(const ServingLoad& load)> before_step = {};
};

struct SlotView {
  int32_t slot = 0;
  int64_t request = -1;                            // -1: idle
  int64_t n_held = 0;                              // tokens that the sequence holds
  int64_t n_prompt = 0;                            // of the request
  int64_t n_cached = 0;                            // of these: were there before
  int64_t n_predicted = 0;                         // tokens chosen so far
  double idle_ms = 0;                              // since it was last used
  std::shared_ptr<const ServingRequest> settings;  // null: idle
};

/// Totals since the start, and how it is now.
struct ServingCounters {
  uint64_t n_requests = 0;                          // taken by submit()
  uint64_t n_refused = 0;                           // by a full queue
  std::array<uint64_t, kStopReasons> n_ended = {};  // by StopReason; kNone: errors
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  double prompt_ms = 0;  // over all requests
  uint64_t predicted_tokens = 0;
  double predicted_ms = 0;
  uint64_t n_steps = 0;       // decodes
  uint64_t n_busy_slots = 0;  // over all steps
  uint64_t n_preempted = 0;   // requests that gave up their pages for others and were read again
  uint64_t n_evicted = 0;     // idle sequences dropped for room
  uint64_t n_forks = 0;       // prefixes shared with another slot
  int64_t n_tokens_max = 0;   // longest sequence so far
  int64_t n_waiting = 0;      // now
  int64_t n_running = 0;      // now
  int64_t kv_pages_used = 0;  // now, over all classes
  int64_t kv_pages_max = 0;
  KeptPromptsCounters cache;
};

class Serving {
 public:
  /// Starts the thread. The context is empty or holds what its slots may begin with; nobody else may use it except
  /// while paused. Errors: text_status(); kInvalidArgument (names the option), kOutOfMemory; those of
  /// KeptPrompts::open().
  static Result<std::unique_ptr<Serving>> start(std::unique_ptr<Context> context, const ServingOptions& options,
                                                const Log& log = {});
  /// As stop().
  ~Serving();
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  /// Queues a request. Result: its number. Errors, after which the sink is never called: kInvalidArgument (empty
  /// prompt, token outside the vocabulary, a number out of range), kCacheFull (the prompt leaves no position for an
  /// answer and may not be shifted; says both numbers), kUnsupported (an embedding of a context without), kBusy (the
  /// queue is full; says how full), kCancelled (it is being shut down), kDeviceLost.
  Result<int64_t> submit(ServingRequest request, std::shared_ptr<ServingSink> sink);
  /// What submit() says of the prompt's length alone: kInvalidArgument (empty), kCacheFull.
  [[nodiscard]] Status check_length(const ServingRequest& request) const;
  /// Ends a request before its next token; unknown and ended ones are ignored.
  void cancel(int64_t request);

  [[nodiscard]] std::vector<SlotView> slots() const;
  [[nodiscard]] ServingCounters counters() const;

  struct SlotFile {
    int64_t n_tokens = 0;
    uint64_t n_bytes = 0;
    double ms = 0;
  };
  /// An idle slot's state to a file, from one, and to nothing; between two steps. Errors: kInvalidArgument (no such
  /// slot), kBusy (a request uses it), those of Context::save_state and load_state; kDeviceLost.
  Result<SlotFile> save_slot(int32_t slot, const std::string& path);
  Result<SlotFile> restore_slot(int32_t slot, const std::string& path);
  Result<int64_t> erase_slot(int32_t slot);

  /// Returns once no step runs and none begins before resume(): requests wait, the context may be used. Calls nest.
  void pause();
  void resume();

  /// Takes no more requests and waits for those it has. Errors: kDeadlineExceeded after `grace`: what still ran was
  /// cancelled.
  Status drain(std::chrono::milliseconds grace);
  /// Takes no more requests, cancels those it has and ends the thread; all on_end calls come before it returns. With a
  /// folder for prompts, those in the slots are written to it.
  /// REQUIRES: not called from a sink.
  void stop();

  /// Whether ServingRequest::branches make a difference.
  [[nodiscard]] bool wants_branches() const;

  [[nodiscard]] Context& context();
  [[nodiscard]] const ServingOptions& options() const;

 private:
  class Impl;
  explicit Serving(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera

#pragma once
// Running a request's generations and bringing what they make to its reply.
//
// One Generation per HTTP request: it queues every choice, cancels them when the client leaves, and writes the log row
// when all have ended. What the reply looks like is a ReplyWriter's affair.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serving.h"
#include "server/server.h"

namespace tessera {

/// Makes a reply of generations. Called by one thread at a time.
class ReplyWriter {
 public:
  explicit ReplyWriter(const Call& call, bool streams)
      : exchange_(call.exchange), anthropic_(asks_anthropic(call.request)), streams_(streams) {}
  virtual ~ReplyWriter() = default;
  ReplyWriter(const ReplyWriter&) = delete;
  ReplyWriter& operator=(const ReplyWriter&) = delete;

  /// The first choices are queued: a stream begins.
  virtual void begin() {}
  virtual void on_progress(size_t choice, int64_t cached, int64_t processed, int64_t total, double ms) {
    (void)choice, (void)cached, (void)processed, (void)total, (void)ms;
  }
  virtual void on_text(size_t choice, std::string_view text, std::span<const ServingToken> tokens,
                       const ServingTimings& timings) = 0;
  virtual void on_end(size_t choice, const ServingEnd& end) = 0;
  /// All choices have ended, none by an error.
  virtual void finish() = 0;
  /// One ended by an error; nothing else is called afterwards.
  virtual void fail(const Status& status);

 protected:
  /// "data: JSON\n\n", with "event: NAME\n" before it where there is a name.
  void send(const Json& json, std::string_view event = {}) const;
  void reply(const Json& json) const;
  [[nodiscard]] HttpExchange& exchange() const { return *exchange_; }
  [[nodiscard]] bool streams() const { return streams_; }

 private:
  std::shared_ptr<HttpExchange> exchange_;
  bool anthropic_;  // errors have that API's form
  bool streams_;
};

/// Queues the requests, as many as the queue takes; others follow as those begin and end, and the reply fails where
/// others have filled the queue by then and none of its own is left in it. The writer hears of request i as choice i.
/// After an error nothing runs and the writer hears nothing. in_turn: no more are queued at once than keep every slot
/// busy. A prompt that is longer than the context is answered here, before anything is queued.
///
/// Errors: those of Serving::submit(); kBusy: not even the first found a place.
Status start_generation(Call& call, std::vector<ServingRequest> requests, std::shared_ptr<ReplyWriter> writer,
                        bool in_turn = false);

/// Time between comments on a silent stream: the field sse_ping_interval (seconds, negative: none), or the server's.
Result<std::chrono::seconds> read_ping(const Call& call, const Json& body);

// ---- pieces of replies

/// llama.cpp's names: cache_n, prompt_n, prompt_ms, ...
Json timings_json(const ServingTimings& timings);
/// "stop", "length": OpenAI's reasons.
std::string_view finish_reason(StopReason stop);
/// Tokens of an answer that came with no text: an unfinished character, a stop word; not the one that ended it.
std::span<const ServingToken> textless_tokens(const ServingEnd& end);
/// OpenAI's usage of several answers to the same prompts.
struct Usage {
  int64_t n_prompt = 0;
  int64_t n_cached = 0;
  int64_t n_predicted = 0;
  int64_t n_reasoning = 0;  // of these
  /// n_reasoning: of this answer's tokens.
  void add(const ServingEnd& end, bool counts_prompt, int64_t n_reasoning = 0);
  [[nodiscard]] Json json() const;
};
/// [{"id","token","bytes","logprob","top_logprobs":[...]}, ...]; as "prob" and "top_probs" where is_prob.
Json probabilities_json(const Tokenizer& tokenizer, std::span<const ServingToken> tokens, bool is_prob = false);

}  // namespace tessera

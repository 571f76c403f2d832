#include "server/generation.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/decimal.h"
#include "base/units.h"

namespace tessera {
namespace {

// What the choices of one request share. Its mutex is held while the first are queued, so that no reply begins before
// they are; afterwards the serving thread alone takes it.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(const Call& call, std::shared_ptr<ReplyWriter> writer)
      : server_(call.server),
        request_(line_of(call.request)),
        exchange_(call.exchange),
        model_(call.model),
        begun_(call.begun),
        writer_(std::move(writer)) {}

  Status start(std::vector<ServingRequest> requests, bool in_turn);

  void on_progress(size_t choice, int64_t cached, int64_t processed, int64_t total, double ms) {
    const std::lock_guard lock(mutex_);
    if (!failed_) {
      writer_->on_progress(choice, cached, processed, total, ms);
    }
  }

  bool on_text(size_t choice, std::string_view text, std::span<const ServingToken> tokens,
               const ServingTimings& timings) {
    const std::lock_guard lock(mutex_);
    if (failed_ || exchange_->gone()) {
      return false;
    }
    writer_->on_text(choice, text, tokens, timings);
    if (choice >= n_begun_) {  // its place in the queue is free, and may be another client's when it ends
      n_begun_ = choice + 1;
      (void)submit_rest();  // what is wrong shows when it ends
    }
    return true;
  }

  void on_end(size_t choice, const ServingEnd& end);

 private:
  void add_to_row(size_t choice, const ServingEnd& end);
  Status submit_rest();
  void cancel();

  Server& server_;
  const HttpRequest request_;
  const std::shared_ptr<HttpExchange> exchange_;
  const std::shared_ptr<ServedModel> model_;
  const std::chrono::steady_clock::time_point begun_;
  const std::shared_ptr<ReplyWriter> writer_;
  std::mutex mutex_;
  std::vector<ServingRequest> requests_;  // by choice; those that were submitted are empty
  bool in_turn_ = false;
  std::vector<int64_t> ids_;  // of those that were
  size_t n_open_ = 0;
  size_t n_begun_ = 0;  // choices before it have brought text, as far as they began in their order
  bool started_ = false;
  bool failed_ = false;
  LogRow row_;
  double predicted_ms_ = 0;
};

class ChoiceSink final : public ServingSink {
 public:
  ChoiceSink(std::shared_ptr<Generation> generation, size_t choice)
      : generation_(std::move(generation)), choice_(choice) {}
  void on_progress(int64_t cached, int64_t processed, int64_t total, double ms) override {
    generation_->on_progress(choice_, cached, processed, total, ms);
  }
  bool on_text(std::string_view text, std::span<const ServingToken> tokens, const ServingTimings& timings) override {
    return generation_->on_text(choice_, text, tokens, timings);
  }
  void on_end(const ServingEnd& end) override { generation_->on_end(choice_, end); }

 private:
  std::shared_ptr<Generation> generation_;
  size_t choice_;
};

Status Generation::start(std::vector<ServingRequest> requests, bool in_turn) {
  {
    const std::lock_guard lock(mutex_);
    requests_ = std::move(requests);
    in_turn_ = in_turn;
    row_.generates = !requests_.front().pooling;
    if (const Status status = submit_rest(); !status.ok()) {
      failed_ = true;  // those before it end unheard
      cancel();
      return status;
    }
    started_ = true;
    try {
      writer_->begin();
    } catch (...) {  // without memory: another reply follows, and nobody hears the answers
      failed_ = true;
      cancel();
      throw;
    }
  }
  exchange_->on_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      const std::lock_guard lock(self->mutex_);
      self->cancel();
    }
  });
  return {};
}

// What the queue has no place for follows as those that it took begin and end. In turn: enough to keep every slot busy,
// and no more of the queue than that. REQUIRES: mutex_.
Status Generation::submit_rest() {
  const auto n_open_max = 2 * static_cast<size_t>(model_->serving->context().options().n_seq_max);
  while (ids_.size() < requests_.size()) {
    const size_t i = ids_.size();
    const bool may_wait = n_open_ > 0;
    if (in_turn_ && n_open_ >= n_open_max) {
      return {};
    }
    const auto id = model_->serving->submit(may_wait ? requests_[i] : std::move(requests_[i]),
                                            std::make_shared<ChoiceSink>(shared_from_this(), i));
    if (!id.ok()) {
      return may_wait && id.status().code() == ErrorCode::kBusy ? Status() : id.status();
    }
    requests_[i] = {};
    ids_.push_back(*id);
    ++n_open_;
  }
  return {};
}

// REQUIRES: mutex_.
void Generation::cancel() {
  requests_.resize(ids_.size());
  for (const int64_t id : ids_) {
    model_->serving->cancel(id);
  }
}

void Generation::on_end(size_t choice, const ServingEnd& end) {
  const std::lock_guard lock(mutex_);
  --n_open_;
  add_to_row(choice, end);
  if (!failed_) {
    Status status = end.status;
    if (status.ok() && end.stop == StopReason::kCancelled) {
      status = {ErrorCode::kCancelled, exchange_->gone() ? "the client has left" : "the server is shutting down"};
    }
    if (status.ok()) {
      writer_->on_end(choice, end);
      status = submit_rest();
    }
    if (!status.ok()) {
      failed_ = true;
      cancel();
      writer_->fail(status);
    }
  }
  if (n_open_ == 0 && started_) {
    if (!failed_) {
      writer_->finish();
    }
    server_.log_request(request_, exchange_->status(), begun_, row_);
  }
}

void Generation::add_to_row(size_t choice, const ServingEnd& end) {
  const ServingTimings& timings = end.timings;
  if (choice == 0) {
    row_.first_token_ms = timings.first_token_ms;
  }
  if (choice == 0 || !row_.generates) {  // choices have one prompt, embeddings one each
    row_.n_prompt += end.n_prompt;
    row_.n_cached += timings.cached_n;
  }
  row_.n_predicted += timings.predicted_n;
  predicted_ms_ = std::max(predicted_ms_, timings.predicted_ms);
  row_.tokens_per_s = per_second(row_.n_predicted, predicted_ms_);
  // A text that became an embedding ends as an answer of no tokens does, which is no limit that anybody set.
  const bool is_embedded = !row_.generates && end.stop == StopReason::kLimit;
  row_.stop = !end.status.ok() ? end.status.message() : is_embedded ? "embedded" : stop_reason_name(end.stop);
}

// The bytes of a token as numbers: its text may be a part of a character.
Json bytes_json(std::string_view bytes) {
  Json list = Json::array();
  for (const char byte : bytes) {
    list.push_back(static_cast<unsigned char>(byte));
  }
  return list;
}

Json token_json(int32_t id, std::string_view bytes, float logprob, bool is_prob) {
  Json json = {{"id", id}, {"token", bytes}, {"bytes", bytes_json(bytes)}};
  if (is_prob) {
    json["prob"] = std::exp(static_cast<double>(logprob));
  } else {
    json["logprob"] = as_written(logprob);
  }
  return json;
}

}  // namespace

void ReplyWriter::fail(const Status& status) {
  if (!streams_) {
    reply_error(*exchange_, status, anthropic_);
    return;
  }
  const int code = http_status_of(status);
  const std::string body = error_body(code, status.message(), anthropic_);
  (void)exchange_->send_events((anthropic_ ? "event: error\ndata: " : "data: ") + body + "\n\n");
  exchange_->end_events();
}

void ReplyWriter::send(const Json& json, std::string_view event) const {
  std::string text;
  if (!event.empty()) {
    text.append("event: ").append(event).append("\n");
  }
  text.append("data: ").append(dump_json(json)).append("\n\n");
  (void)exchange_->send_events(text);  // Generation asks whether the client is there
}

void ReplyWriter::reply(const Json& json) const {
  exchange_->reply(200, "application/json; charset=utf-8", dump_json(json));
}

Status start_generation(Call& call, std::vector<ServingRequest> requests, std::shared_ptr<ReplyWriter> writer,
                        bool in_turn) {
  Serving& serving = *call.model->serving;
  for (const ServingRequest& request : requests) {
    if (const Status fits = serving.check_length(request); fits.code() == ErrorCode::kCacheFull) {
      reply_too_long(*call.exchange, fits, std::ssize(request.prompt), serving.context().options().n_ctx,
                     asks_anthropic(call.request));
      return {};
    }
  }
  const auto generation = std::make_shared<Generation>(call, std::move(writer));
  call.logs_itself = true;
  return generation->start(std::move(requests), in_turn);
}

Result<std::chrono::seconds> read_ping(const Call& call, const Json& body) {
  int64_t seconds = call.server.settings().ping.count();
  TRY(Fields(body).read("sse_ping_interval", seconds, -1, 86400));
  return std::chrono::seconds(std::max<int64_t>(seconds, 0));
}

Json timings_json(const ServingTimings& t) {
  // The first token comes with the prompt's end: its time is the prompt's.
  const int64_t n_after = std::max<int64_t>(t.predicted_n - 1, 0);
  return {{"cache_n", t.cached_n},
          {"prompt_n", t.prompt_n},
          {"prompt_ms", t.prompt_ms},
          {"prompt_per_token_ms", per_token(t.prompt_n, t.prompt_ms)},
          {"prompt_per_second", per_second(t.prompt_n, t.prompt_ms)},
          {"predicted_n", t.predicted_n},
          {"predicted_ms", t.predicted_ms},
          {"predicted_per_token_ms", per_token(n_after, t.predicted_ms)},
          {"predicted_per_second", per_second(n_after, t.predicted_ms)}};
}

std::string_view finish_reason(StopReason stop) {
  return stop == StopReason::kLimit || stop == StopReason::kContextFull ? "length" : "stop";
}

std::span<const ServingToken> textless_tokens(const ServingEnd& end) {
  const bool ends_it = end.stop == StopReason::kEos && !end.rest.empty();
  return std::span(end.rest).first(end.rest.size() - (ends_it ? 1 : 0));
}

void Usage::add(const ServingEnd& end, bool counts_prompt, int64_t n_reasoning_of_it) {
  n_predicted += end.timings.predicted_n;
  n_reasoning += n_reasoning_of_it;
  if (counts_prompt) {
    n_prompt += end.n_prompt;
    n_cached += end.timings.cached_n;
  }
}

Json Usage::json() const {
  return {{"prompt_tokens", n_prompt},
          {"completion_tokens", n_predicted},
          {"total_tokens", n_prompt + n_predicted},
          {"prompt_tokens_details", {{"cached_tokens", n_cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", n_reasoning}}}};
}

Json probabilities_json(const Tokenizer& tokenizer, std::span<const ServingToken> tokens, bool is_prob) {
  Json list = Json::array();
  for (const ServingToken& token : tokens) {
    Json json = token_json(token.id, token.bytes, token.logprob, is_prob);
    Json top = Json::array();
    for (const TokenProb& other : token.top) {
      top.push_back(token_json(other.id, tokenizer.piece(other.id), other.logprob, is_prob));
    }
    json[is_prob ? "top_probs" : "top_logprobs"] = std::move(top);
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace tessera

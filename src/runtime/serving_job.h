#pragma once
// One request of Serving from submit() to on_end: its sampler, its text, its times, its sink. Private to
// runtime/serving.cc, which calls it from the serving thread only.

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serving.h"

namespace tessera {

class ServingJob {
 public:
  using Clock = std::chrono::steady_clock;

  ServingJob(std::shared_ptr<const ServingRequest> request, std::shared_ptr<ServingSink> sink, Sampler sampler,
             const Tokenizer& tokenizer, std::span<const int32_t> prompt, bool truncated);

  /// The first time that it has a slot.
  void begin(int32_t slot, int64_t n_cached);
  [[nodiscard]] bool has_begun() const { return slot_ >= 0; }

  /// Some of the prompt was read: n_held tokens are there.
  void progress(int64_t n_held);

  /// Chooses a token after n_tokens, reports it and hands on what text is certain. True: it may go on, with token();
  /// false: it has come to its end, for which the caller calls end().
  bool choose(std::span<const float> logits, int64_t n_tokens);
  [[nodiscard]] int32_t token() const { return token_; }
  void count_shift() { ++end_.n_shifts; }

  /// A request for an embedding: its rows, and once it has all, in place of choose(), what they make.
  [[nodiscard]] bool is_embedding() const { return pool_.has_value(); }
  [[nodiscard]] bool wants_row(int64_t position) const { return pool_ && pool_->wants(position); }
  void add_row(int64_t position, std::span<const float> row) { pool_->add(position, row); }
  void finish_embedding();

  /// Says why it ends, if choose() has not.
  void settle(StopReason stop, Status status = {});
  /// Hands on what text is left and calls on_end. Once, after settle().
  void tell_end();
  /// How it has ended, after settle().
  [[nodiscard]] const ServingEnd& ending() const { return end_; }

  [[nodiscard]] const std::shared_ptr<const ServingRequest>& request() const { return request_; }
  [[nodiscard]] int64_t n_prompt() const { return end_.n_prompt; }
  /// Tokens that context shifts never drop.
  [[nodiscard]] size_t n_keep() const { return n_keep_; }
  [[nodiscard]] int64_t n_predicted() const { return end_.timings.predicted_n; }

 private:
  Status pick(std::span<const float> logits, int64_t n_tokens);
  void add_token(const TokenProbs& probs);
  bool emit(const std::string& text);

  std::shared_ptr<const ServingRequest> request_;
  std::shared_ptr<ServingSink> sink_;
  Sampler sampler_;
  ReasoningBudget reasoning_;
  const Tokenizer& tokenizer_;
  TokenText text_;
  std::optional<EmbeddingPool> pool_;
  size_t n_keep_;
  int32_t slot_ = -1;
  int32_t token_ = 0;
  std::vector<ServingToken> unsent_;
  std::vector<float> limited_;  // [n_vocab] logits without what the constraint rules out
  Clock::time_point submitted_ = Clock::now();
  Clock::time_point begun_;
  Clock::time_point first_token_;
  ServingEnd end_;
};

}  // namespace tessera

#include "runtime/serving_job.h"

#include <utility>

#include "base/units.h"
#include "runtime/generate.h"
#include "tokenizer/utf8.h"

namespace tessera {
ServingJob::ServingJob(std::shared_ptr<const ServingRequest> request, std::shared_ptr<ServingSink> sink,
                       Sampler sampler, const Tokenizer& tokenizer, std::span<const int32_t> prompt, bool truncated)
    : request_(std::move(request)),
      sink_(std::move(sink)),
      sampler_(std::move(sampler)),
      reasoning_(request_->reasoning),
      tokenizer_(tokenizer),
      text_(tokenizer, request_->stop, request_->show_special),
      n_keep_(kept_tokens(tokenizer, prompt, request_->n_keep)) {
  sampler_.accept(prompt);
  end_.seed = sampler_.seed();
  end_.n_prompt = static_cast<int64_t>(prompt.size());
  end_.truncated = truncated;
  if (request_->pooling) {
    pool_.emplace(*request_->pooling, end_.n_prompt);
  }
}

void ServingJob::finish_embedding() {
  end_.embedding = pool_->result();
  end_.stop = StopReason::kLimit;
}

void ServingJob::begin(int32_t slot, int64_t n_cached) {
  slot_ = slot;
  begun_ = Clock::now();
  end_.slot = slot;
  end_.timings.queue_ms = ms_between(submitted_, begun_);
  end_.timings.cached_n = n_cached;
  sink_->on_begin(slot, n_cached, end_.n_prompt);
}

void ServingJob::progress(int64_t n_held) {
  if (n_predicted() == 0) {
    end_.timings.prompt_n = n_held - end_.timings.cached_n;
    end_.timings.prompt_ms = ms_between(begun_, Clock::now());
    if (request_->wants_progress) {
      sink_->on_progress(end_.timings.cached_n, n_held, end_.n_prompt, end_.timings.prompt_ms);
    }
  }
}

bool ServingJob::choose(std::span<const float> logits, int64_t n_tokens) {
  ServingTimings& timings = end_.timings;
  if (request_->max_tokens == 0) {
    end_.stop = StopReason::kLimit;
    return false;
  }
  end_.status = pick(logits, n_tokens);
  if (!end_.status.ok()) {
    return false;
  }
  if (token_ == kNoToken) {
    end_.stop = StopReason::kGrammar;
    return false;
  }
  const Clock::time_point now = Clock::now();
  if (timings.predicted_n++ == 0) {
    first_token_ = now;
    timings.prompt_ms = ms_between(begun_, now);
    timings.first_token_ms = ms_between(submitted_, now);
  }
  timings.predicted_ms = ms_between(first_token_, now);
  if (tokenizer_.is_end_of_generation(token_)) {
    end_.stop = StopReason::kEos;
    return false;
  }
  const std::string text = text_.push(token_);
  if (!text_.stop_word().empty()) {
    end_.stop = StopReason::kWord;
    end_.stop_word = text_.stop_word();
  } else if (timings.predicted_n == request_->max_tokens ||
             (request_->max_ms > 0 && timings.predicted_ms >= static_cast<double>(request_->max_ms))) {
    end_.stop = StopReason::kLimit;
  }
  if (!emit(text)) {
    end_.stop = StopReason::kCancelled;
  }
  return end_.stop == StopReason::kNone;
}

// Draws token_ and adds it to those that are not handed on yet; kNoToken: nothing can follow.
Status ServingJob::pick(std::span<const float> logits, int64_t n_tokens) {
  std::span<const float> allowed = logits;
  if (request_->constraint != nullptr) {
    limited_.assign(logits.begin(), logits.end());
    TRY(request_->constraint->apply(limited_));
    allowed = limited_;
  }
  const bool wants_probs = request_->wants_logprobs || request_->n_probs > 0;
  std::vector<TokenProbability> drawn_from;
  if (wants_probs && request_->post_sampling_probs) {
    const std::span<const TokenProbability> distribution = sampler_.distribution(allowed);
    drawn_from.assign(distribution.begin(), distribution.end());
  }
  if (const std::optional<int32_t> forced = reasoning_.forced()) {
    token_ = *forced;
    sampler_.force(token_);
  } else {
    ASSIGN_OR_RETURN(token_, choose_token(sampler_, allowed, n_tokens));
  }
  if (token_ == kNoToken) {
    return {};
  }
  reasoning_.accept(tokenizer_.piece(token_));
  if (request_->constraint != nullptr) {
    TRY(request_->constraint->accept(token_));
  }
  TokenProbs probs;
  if (wants_probs) {
    probs = request_->post_sampling_probs ? drawn_probs(drawn_from, token_, request_->n_probs)
                                          : logit_probs(logits, token_, request_->n_probs);
  }
  unsent_.push_back({token_, std::string(tokenizer_.piece(token_)), probs.chosen, std::move(probs.top)});
  return {};
}

// Bytes that are no characters come from the model; who gets the text wants UTF-8. Pieces end between characters.
bool ServingJob::emit(const std::string& text) {
  if (text.empty()) {
    return true;
  }
  const bool goes_on = sink_->on_text(with_replacements(text), unsent_, end_.timings);
  unsent_.clear();
  return goes_on;
}

void ServingJob::settle(StopReason stop, Status status) {
  if (end_.stop == StopReason::kNone && end_.status.ok()) {
    end_.stop = stop;
    end_.status = std::move(status);
  }
}

void ServingJob::tell_end() {
  // The token that ended it has no part in the text.
  const size_t n_last = end_.stop == StopReason::kEos ? 1 : 0;
  const std::string text = text_.finish();
  if (!text.empty() && end_.stop != StopReason::kCancelled) {
    const std::span<const ServingToken> unsent(unsent_);
    (void)sink_->on_text(with_replacements(text), unsent.first(unsent.size() - n_last), end_.timings);
    unsent_.erase(unsent_.begin(), unsent_.end() - static_cast<std::ptrdiff_t>(n_last));
  }
  end_.rest = std::move(unsent_);
  sink_->on_end(end_);
  sink_.reset();
}

}  // namespace tessera

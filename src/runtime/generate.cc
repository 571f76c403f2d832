#include "runtime/generate.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <utility>

#include "base/units.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

bool is_cancelled(const GenerateHooks& hooks) {
  return hooks.cancelled != nullptr && hooks.cancelled->load(std::memory_order_relaxed);
}

// Collects a generation's text and hands it on.
class TextOutput {
 public:
  TextOutput(const Tokenizer& tokenizer, const GenerateOptions& options, const GenerateHooks& hooks)
      : stream_(tokenizer, options.stop_words, false), hooks_(hooks) {}

  Status push(int32_t id) { return emit(stream_.push(id)); }
  Status finish() { return emit(stream_.finish()); }

  [[nodiscard]] const std::string& stop_word() const { return stream_.stop_word(); }
  std::string take() { return std::move(text_); }

 private:
  Status emit(const std::string& piece) {
    text_ += piece;
    return hooks_.on_text && !piece.empty() ? hooks_.on_text(piece) : Status();
  }

  TokenText stream_;
  const GenerateHooks& hooks_;
  std::string text_;
};

}  // namespace

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, const RenderedPrompt& prompt) {
  std::vector<TextSpan> spans;
  for (const RenderedPrompt::Span& span : prompt.spans) {
    spans.push_back({std::string_view(prompt.text).substr(span.begin, span.end - span.begin), span.from_template});
  }
  std::vector<int32_t> ids = tokenizer.encode(spans, true);
  const std::optional<int32_t> bos = tokenizer.bos();
  if (tokenizer.add_bos() && bos && ids.size() >= 2 && ids[0] == *bos && ids[1] == *bos) {
    ids.erase(ids.begin());
  }
  return ids;
}

size_t kept_tokens(const Tokenizer& tokenizer, std::span<const int32_t> prompt, int64_t n_keep) {
  const bool begins = tokenizer.add_bos() && !prompt.empty() && tokenizer.bos() == prompt[0];
  const int64_t n = n_keep + (begins ? 1 : 0);
  return n_keep < 0 || std::cmp_greater(n, prompt.size()) ? prompt.size() : static_cast<size_t>(n);
}

std::vector<int32_t> shift_tokens(std::span<const int32_t> tokens, size_t n_keep) {
  std::vector<int32_t> left(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n_keep));
  const std::span<const int32_t> later = tokens.subspan(n_keep + (tokens.size() - n_keep) / 2);
  left.insert(left.end(), later.begin(), later.end());
  return left;
}

Status check_prompt(size_t n_tokens, int64_t n_ctx, bool has_answer) {
  if (n_tokens == 0) {
    return {ErrorCode::kInvalidArgument, "the prompt is empty"};
  }
  if (std::cmp_greater(n_tokens, n_ctx - (has_answer ? 1 : 0))) {
    return {ErrorCode::kCacheFull,
            fmt::format("the prompt has {} tokens and the context holds {}{}; raise --ctx-size or shorten the prompt",
                        n_tokens, n_ctx, has_answer ? ", one of them for the answer" : "")};
  }
  return {};
}

Status check_generation(const Model& model, const GenerateOptions& options) {
  return SamplerMaker(model).make(options.sampler, options.ignore_eos).status();
}

Result<Generation> Session::generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                                     const GenerateHooks& hooks) {
  TRY(context_.model().text_status());
  const Tokenizer& tokenizer = context_.model().tokenizer();
  const int64_t n_ctx = context_.options().n_ctx;
  TRY(check_prompt(prompt.size(), n_ctx));
  ASSIGN_OR_RETURN(Sampler sampler, samplers_.make(options.sampler, options.ignore_eos));
  Generation result;
  const Clock::time_point begin = Clock::now();
  TRY(keep_common(prompt));
  result.timings.cache_n = static_cast<int64_t>(held_.size());
  if (hooks.on_begin) {
    const int64_t n_cached = result.timings.cache_n;
    TRY(hooks.on_begin(static_cast<int64_t>(prompt.size()) - n_cached, n_cached));
  }
  const Clock::time_point start = Clock::now();
  ASSIGN_OR_RETURN(const bool complete, read(prompt, hooks));
  result.timings.prompt_n = static_cast<int64_t>(held_.size()) - result.timings.cache_n;
  result.timings.prompt_ms = ms_between(start, Clock::now());
  if (complete && hooks.on_prompt) {
    TRY(hooks.on_prompt());
  }

  sampler.accept(prompt);
  result.seed = sampler.seed();
  TextOutput output(tokenizer, options, hooks);
  const size_t n_keep = kept_tokens(tokenizer, prompt, options.n_keep);
  const Clock::time_point prompt_end = Clock::now();
  result.stop = !complete ? StopReason::kCancelled : options.max_tokens == 0 ? StopReason::kLimit : StopReason::kNone;
  while (result.stop == StopReason::kNone) {
    ASSIGN_OR_RETURN(const int32_t id, choose_token(sampler, context_.logits(0), static_cast<int64_t>(held_.size())));
    if (id == kNoToken) {
      result.stop = StopReason::kGrammar;
      break;
    }
    result.tokens.push_back(id);
    if (tokenizer.is_end_of_generation(id)) {
      result.stop = StopReason::kEos;
      break;
    }
    TRY(output.push(id));
    if (!output.stop_word().empty()) {
      result.stop = StopReason::kWord;
    } else if (std::cmp_equal(result.tokens.size(), options.max_tokens)) {
      result.stop = StopReason::kLimit;
    } else if (std::cmp_less(held_.size(), n_ctx)) {
      ASSIGN_OR_RETURN(result.stop, append(id, hooks));
    } else if (options.context_shift && options.max_tokens != kUntilFull) {
      ASSIGN_OR_RETURN(result.stop, shift_and_append(id, n_keep, hooks));
      result.n_shifts += result.stop == StopReason::kNone ? 1 : 0;
    } else {
      result.stop = StopReason::kContextFull;
    }
  }
  TRY(output.finish());
  result.timings.predicted_ms = ms_between(prompt_end, Clock::now());
  result.timings.predicted_n = static_cast<int64_t>(result.tokens.size());
  result.timings.total_ms = ms_between(begin, Clock::now());
  result.stop_word = output.stop_word();
  result.text = output.take();
  return result;
}

Status Session::clear() {
  held_.clear();
  return context_.truncate(seq_, 0);
}

// Leaves in the sequence what it has in common with the prompt, but not the prompt's last token: its logits are wanted.
// Where the sequence cannot be cut there, because a window has let go or recurrent state went on, it leaves less.
Status Session::keep_common(std::span<const int32_t> prompt) {
  // An earlier decode that failed may have emptied the sequence.
  held_.resize(static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(held_.size()), context_.length(seq_))));
  const auto differ = std::ranges::mismatch(held_, prompt).in1;
  const size_t common = std::min(static_cast<size_t>(differ - held_.begin()), prompt.size() - 1);
  ASSIGN_OR_RETURN(const int64_t kept, context_.rewind(seq_, static_cast<int64_t>(common)));
  held_.resize(static_cast<size_t>(kept));
  return {};
}

// Decodes what the sequence lacks of the tokens, in pieces of n_batch. False: cancelled on the way. Where snapshots are
// kept, one is taken before the last token, so that these tokens asked for again, or others that go on from them, find
// it.
Result<bool> Session::read(std::span<const int32_t> tokens, const GenerateHooks& hooks) {
  const auto n_batch = static_cast<size_t>(context_.options().n_batch);
  const DecodeProgress progress = [&](int64_t n_given) {
    if (hooks.on_progress) {
      hooks.on_progress(static_cast<int64_t>(held_.size()) + n_given, static_cast<int64_t>(tokens.size()));
    }
    return !is_cancelled(hooks);
  };
  while (held_.size() < tokens.size()) {
    size_t end = tokens.size();
    if (context_.keeps_snapshots() && held_.size() + 1 < end) {
      --end;
    }
    const auto piece = tokens.subspan(held_.size(), std::min(n_batch, end - held_.size()));
    std::vector<BatchToken> batch;
    for (const int32_t id : piece) {
      batch.push_back({id, seq_, false});
    }
    batch.back().wants_logits = held_.size() + piece.size() == tokens.size();
    const Status status = context_.decode(batch, progress);
    if (status.code() == ErrorCode::kCancelled && is_cancelled(hooks)) {
      held_ = context_.tokens(seq_);
      break;
    }
    TRY(status);
    held_.insert(held_.end(), piece.begin(), piece.end());
    if (held_.size() + 1 == tokens.size()) {
      // Without memory for it the next prompt is read from further back.
      (void)context_.snapshot(seq_);
    }
  }
  if (hooks.on_progress) {
    hooks.on_progress(static_cast<int64_t>(tokens.size()), static_cast<int64_t>(tokens.size()));
  }
  return held_.size() == tokens.size();
}

// Decodes a token that was chosen. Why the generation ends, if it does.
Result<StopReason> Session::append(int32_t id, const GenerateHooks& hooks) {
  if (is_cancelled(hooks)) {
    return StopReason::kCancelled;
  }
  const BatchToken next{id, seq_, true};
  TRY(context_.decode({&next, 1}));
  held_.push_back(id);
  return StopReason::kNone;
}

// The same in a full context, which is shifted first.
Result<StopReason> Session::shift_and_append(int32_t id, size_t n_keep, const GenerateHooks& hooks) {
  std::vector<int32_t> left = shift_tokens(held_, n_keep);
  if (left.size() == held_.size()) {
    return StopReason::kContextFull;  // nothing to drop
  }
  left.push_back(id);
  TRY(keep_common(left));
  GenerateHooks silent;
  silent.cancelled = hooks.cancelled;
  ASSIGN_OR_RETURN(const bool complete, read(left, silent));
  return complete ? StopReason::kNone : StopReason::kCancelled;
}

}  // namespace tessera

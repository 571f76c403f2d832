#include "decode_timer.h"

#include <chrono>
#include <fmt/format.h>
#include <utility>
#include <vector>

namespace tessera {

std::string DecodeTest::name() const {
  std::string text = n_prompt > 0 ? fmt::format("pp{}", n_prompt) : "";
  text += n_gen > 0 ? fmt::format("{}tg{}", text.empty() ? "" : "+", n_gen) : "";
  return text + (n_depth > 0 ? fmt::format(" @ d{}", n_depth) : "");
}

DecodeTimer::DecodeTimer(Context& context, const std::atomic<bool>* interrupted)
    : context_(context), interrupted_(interrupted), n_vocab_(static_cast<int32_t>(context.model().summary().n_vocab)) {}

Result<double> DecodeTimer::run(const DecodeTest& test) {
  TRY(go_back_to(test.n_depth));
  const auto start = std::chrono::steady_clock::now();
  TRY(prompt(test.n_prompt, true));
  TRY(generate(test.n_gen));
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

Status DecodeTimer::go_back_to(int64_t depth) {
  if (context_.length(0) < depth || !context_.truncate(0, depth).ok()) {
    TRY(context_.clear());
    TRY(prompt(depth, false));
  }
  return {};
}

Status DecodeTimer::prompt(int64_t n, bool wants_logits) {
  std::vector<BatchToken> batch;
  for (int64_t i = 0; i < n; ++i) {
    batch.push_back({next_token(), 0, wants_logits && i + 1 == n});
    if (std::cmp_equal(batch.size(), context_.options().n_batch) || i + 1 == n) {
      TRY(decode(batch));
      batch.clear();
    }
  }
  return {};
}

Status DecodeTimer::generate(int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const BatchToken token{next_token(), 0, true};
    TRY(decode({&token, 1}));
  }
  return {};
}

Status DecodeTimer::decode(std::span<const BatchToken> batch) {
  if (interrupted_ == nullptr) {
    return context_.decode(batch);
  }
  const Status status = context_.decode(batch, [this](int64_t) { return !*interrupted_; });
  return status.code() == ErrorCode::kCancelled
             ? Status(ErrorCode::kCancelled, "interrupted while speeds were measured")
             : status;
}

int32_t DecodeTimer::next_token() {
  state_ = state_ * 6364136223846793005U + 1442695040888963407U;
  return static_cast<int32_t>((state_ >> 33) % static_cast<uint64_t>(n_vocab_));
}

}  // namespace tessera

#include "runtime/reasoning_budget.h"

#include <algorithm>
#include <utility>

namespace tessera {

ReasoningBudget::ReasoningBudget(ReasoningLimit limit) : limit_(std::move(limit)) {
  if (limit_.n_tokens < 0 || limit_.end_tokens.empty() || limit_.end.empty()) {
    state_ = State::kOver;
  } else if (limit_.is_open) {
    enter(State::kInside);
  }
}

void ReasoningBudget::enter(State state) {
  tail_.clear();
  state_ = state;
  if (state == State::kInside && n_spent_ >= limit_.n_tokens) {
    state_ = State::kForcing;
    n_forced_ = 0;
  }
}

std::optional<int32_t> ReasoningBudget::forced() const {
  return state_ == State::kForcing ? std::optional(limit_.end_tokens[n_forced_]) : std::nullopt;
}

void ReasoningBudget::accept(std::string_view bytes) {
  const State after = limit_.repeats ? State::kBefore : State::kOver;
  if (state_ == State::kOver) {
    return;
  }
  if (state_ == State::kForcing) {
    if (++n_forced_ == limit_.end_tokens.size()) {
      enter(after);
    }
    return;
  }
  const std::string& mark = state_ == State::kInside ? limit_.end : limit_.begin;
  n_spent_ += state_ == State::kInside ? 1 : 0;
  tail_ += bytes;
  if (tail_.find(mark) != std::string::npos) {
    enter(state_ == State::kInside ? after : State::kInside);
    return;
  }
  if (state_ == State::kBefore && !limit_.repeats) {
    const size_t first = std::min(tail_.find_first_not_of(" \t\r\n"), tail_.size());
    if (!mark.starts_with(std::string_view(tail_).substr(first))) {
      state_ = State::kOver;  // it does not reason
    }
    return;
  }
  tail_.erase(0, tail_.size() - std::min(tail_.size(), mark.size() - 1));
  if (state_ == State::kInside && n_spent_ >= limit_.n_tokens) {
    enter(State::kForcing);
    n_forced_ = 0;
  }
}

}  // namespace tessera

#include "runtime/sampler_dry.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include "runtime/sampler_math.h"

namespace tessera {
namespace {

constexpr size_t kMaxTextBytes = 40;
constexpr size_t kMaxTailTokens = 20;

// By distance k from the end: how many tokens before the end equal those before the kth last, at most limit (the
// Z-function of the reversed history; k = 0 is left 0). REQUIRES: history is not empty.
void repeat_lengths(std::span<const int32_t> history, size_t limit, std::vector<int32_t>& lengths) {
  const size_t n = history.size();
  const auto token = [&](size_t from_end) { return history[n - 1 - from_end]; };
  lengths.assign(n, 0);
  size_t left = 0;  // the match that reaches furthest back lies in [left, right)
  size_t right = 0;
  for (size_t k = 1; k < n; ++k) {
    size_t length = 0;
    if (k < right) {
      length = std::min(static_cast<size_t>(lengths[k - left]), right - k);
    }
    if (k + length >= right) {
      while (k + length < n && token(length) == token(k + length)) {
        ++length;
      }
      left = k;
      right = k + length;
    }
    lengths[k] = static_cast<int32_t>(length);
  }
  for (int32_t& length : lengths) {
    length = static_cast<int32_t>(std::min(static_cast<size_t>(length), limit));
  }
}

}  // namespace

Result<DryBreakers> DryBreakers::create(const Tokenizer& tokenizer, std::span<const std::string> texts) {
  if (texts.size() > kMaxTexts) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("{} DRY sequence breakers; there may be {}", texts.size(), kMaxTexts));
  }
  DryBreakers breakers;
  for (const std::string& whole : texts) {
    const std::string_view text = std::string_view(whole).substr(0, kMaxTextBytes);
    if (text.empty()) {
      continue;
    }
    std::vector<std::vector<int32_t>> tails(text.size());  // by bytes of the text that the head covers
    for (int32_t id = 0; id < tokenizer.n_vocab(); ++id) {
      const std::string_view piece = tokenizer.piece(id);
      if (piece.find(text) != std::string_view::npos) {
        breakers.add({&id, 1});
        continue;
      }
      for (size_t n = std::min(piece.size(), text.size() - 1); n > 0; --n) {
        if (!piece.ends_with(text.substr(0, n))) {
          continue;
        }
        if (tails[n].empty()) {
          tails[n] = tokenizer.encode(text.substr(n), {.parse_special = false});
          tails[n].resize(std::min(tails[n].size(), kMaxTailTokens));
        }
        std::vector<int32_t> sequence = {id};
        sequence.insert(sequence.end(), tails[n].begin(), tails[n].end());
        breakers.add(sequence);
      }
    }
  }
  return breakers;
}

void DryBreakers::add(std::span<const int32_t> sequence) {
  auto& tails = tails_by_head_[sequence[0]];
  std::vector<int32_t> tail(sequence.begin() + 1, sequence.end());
  if (std::ranges::find(tails, tail) == tails.end()) {
    tails.push_back(std::move(tail));
  }
}

bool DryBreakers::is_breaker(int32_t token) const {
  const auto found = tails_by_head_.find(token);
  return found != tails_by_head_.end() &&
         std::ranges::find(found->second, std::vector<int32_t>()) != found->second.end();
}

size_t DryBreakers::longest_repetition(std::span<const int32_t> history) const {
  for (size_t i = 0; i < history.size(); ++i) {  // tokens behind the head
    const auto found = tails_by_head_.find(history[history.size() - 1 - i]);
    if (found == tails_by_head_.end()) {
      continue;
    }
    const std::span<const int32_t> behind = history.last(i);
    bool matched = false;
    size_t longest = 0;
    for (const std::vector<int32_t>& tail : found->second) {
      if (tail.size() <= i && std::ranges::equal(tail, behind.first(tail.size()))) {
        matched = true;
        longest = std::max(longest, tail.size());
      }
    }
    if (matched) {
      return i - longest;
    }
  }
  return history.size();
}

void DryPenalty::apply(Candidates& candidates, std::span<const int32_t> history, const DryBreakers& breakers,
                       std::vector<int32_t>& scratch) const {
  if (last_n >= 0) {
    history = history.last(std::min(history.size(), static_cast<size_t>(last_n)));
  }
  const auto allowed = static_cast<size_t>(std::max(allowed_length, 0));
  if (history.size() <= allowed) {
    return;
  }
  const size_t limit = breakers.longest_repetition(history);
  if (limit < allowed) {
    return;
  }
  repeat_lengths(history, limit, scratch);
  std::map<int32_t, int32_t> longest;  // by the token that followed
  for (size_t k = 1; k < history.size(); ++k) {
    if (static_cast<size_t>(scratch[k]) >= allowed) {
      int32_t& length = longest[history[history.size() - k]];
      length = std::max(length, scratch[k]);
    }
  }
  std::vector<int32_t> ids;
  std::vector<float> penalties;
  for (const auto& [id, length] : longest) {
    if (breakers.is_breaker(id)) {
      continue;
    }
    // Beyond the largest float nothing would change.
    const double grown =
        exact_pow(static_cast<double>(base), static_cast<double>(length) - static_cast<double>(allowed));
    const double penalty = static_cast<double>(multiplier) * grown;
    constexpr double kMax = std::numeric_limits<float>::max();
    ids.push_back(id);
    penalties.push_back(static_cast<float>(std::clamp(penalty, -kMax, kMax)));
  }
  candidates.edit(
      ids, [&](float logit, size_t i) { return std::max(logit - penalties[i], std::numeric_limits<float>::lowest()); });
}

}  // namespace tessera

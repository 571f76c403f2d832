#include "runtime/sampler_infill.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace tessera {
namespace {

constexpr double kEndFactor = 3;
constexpr double kLeast = 0.2;

// Control tokens have no text to share.
std::string_view text_of(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.is_control(id) ? std::string_view() : tokenizer.piece(id);
}

void merge_beginnings(std::vector<TokenProbability>& list, const Tokenizer& tokenizer) {
  const size_t n = std::min(list.size(), kInfillMerged);
  std::vector<std::string_view> texts;
  for (size_t i = 0; i < n; ++i) {
    texts.push_back(text_of(tokenizer, list[i].id));
  }
  std::vector<bool> gone(n, false);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n && !gone[i]; ++j) {
      if (i == j || gone[j] || texts[i].empty() || !texts[j].starts_with(texts[i])) {
        continue;
      }
      const auto [from, to] = list[j].probability > list[i].probability ? std::pair(i, j) : std::pair(j, i);
      list[to].probability += list[from].probability;
      list[from].probability = 0;
      gone[from] = true;
    }
  }
}

}  // namespace

void keep_infill(Candidates& candidates, const Tokenizer& tokenizer, std::optional<int32_t> end) {
  candidates.sort_first(kInfillMerged);
  candidates.weigh();
  auto& list = candidates.list();
  if (list.empty()) {
    return;
  }
  const TokenProbability best = list.front();
  const auto is_end = [&](const TokenProbability& c) { return tokenizer.is_end_of_generation(c.id); };
  const double total = total_weight(list);
  double ends = 0;
  for (TokenProbability& c : list) {
    c.probability /= total;
    ends += is_end(c) ? c.probability : 0;
  }
  const auto keep = [&](const auto& wanted) {
    candidates.keep_if(wanted);
    return std::ranges::count_if(list, [&](const TokenProbability& c) { return !is_end(c); });
  };
  if (kEndFactor * ends * static_cast<double>(list.size()) > 1 - ends) {
    keep(is_end);
    candidates.changed();
    return;
  }
  merge_beginnings(list, tokenizer);
  const auto n_texts = keep([&](const TokenProbability& c) { return is_end(c) || c.probability >= kLeast; });
  if (n_texts == 0) {
    list.assign(1, end ? TokenProbability{.id = *end, .logit = 1, .probability = 1} : best);
  } else {
    const double least = total_weight(list) / static_cast<double>(n_texts + 1);
    keep([&](const TokenProbability& c) { return is_end(c) || c.probability >= least; });
  }
  candidates.changed();
}

}  // namespace tessera

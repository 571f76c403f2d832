#include "runtime/sampler_penalties.h"

#include <cmath>

namespace tessera {

LogitBiases::LogitBiases(std::span<const LogitBias> biases) {
  std::map<int32_t, float> sums;
  for (const LogitBias& b : biases) {
    float& sum = sums[b.id];
    sum += b.bias;
    sum = std::isnan(sum) ? -std::numeric_limits<float>::infinity() : sum;  // forced and banned: banned
  }
  for (const auto& [id, bias] : sums) {
    ids_.push_back(id);
    biases_.push_back(bias);
  }
}

void LogitBiases::apply(Candidates& candidates) const {
  candidates.edit(ids_, [this](float logit, size_t i) { return logit + biases_[i]; });
}

void TokenWindow::advance(std::span<const int32_t> history) {
  ++counts_[history.back()];
  const auto size = static_cast<int64_t>(history.size());
  if (n_ < 0 || size <= n_) {
    return;
  }
  const auto gone = counts_.find(history[static_cast<size_t>(size - n_ - 1)]);
  if (--gone->second == 0) {
    counts_.erase(gone);
  }
}

void RepetitionPenalties::apply(Candidates& candidates, const TokenWindow& window) const {
  std::vector<int32_t> ids;
  std::vector<int32_t> counts;
  for (const auto& [id, count] : window.counts()) {
    ids.push_back(id);
    counts.push_back(count);
  }
  candidates.edit(ids, [&](float logit, size_t i) {
    const float scaled = logit <= 0 ? logit * repeat : logit / repeat;
    const float changed = scaled - (static_cast<float>(counts[i]) * frequency + presence);
    return std::max(changed, std::numeric_limits<float>::lowest());  // of NaN: NaN, which changes nothing
  });
}

}  // namespace tessera

#include "runtime/sampler_candidates.h"

#include <cmath>
#include <iterator>

#include "runtime/sampler_math.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TokenProbability candidate(size_t id, float logit) {
  return {static_cast<int32_t>(id), std::min(logit, std::numeric_limits<float>::max()), 0};
}

// A heap with the worst of the best k on top: nearly every logit costs one comparison with it.
void select_best(std::span<const float> logits, size_t k, std::vector<TokenProbability>& best) {
  best.clear();
  float worst = -kInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > worst)) {  // NaN, -inf, or an equal with a higher id
      continue;
    }
    const TokenProbability c = candidate(i, logits[i]);
    if (best.size() == k) {
      if (c.logit == worst) {  // was +inf
        continue;
      }
      std::pop_heap(best.begin(), best.end(), better);
      best.pop_back();
    }
    best.push_back(c);
    std::push_heap(best.begin(), best.end(), better);
    if (best.size() == k) {
      worst = best.front().logit;
    }
  }
  std::sort_heap(best.begin(), best.end(), better);
}

}  // namespace

int32_t largest_logit(std::span<const float> logits) {
  int32_t best = -1;
  float largest = -kInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > largest) {
      largest = logits[i];
      best = static_cast<int32_t>(i);
    }
  }
  return best;
}

void Candidates::reset(std::span<const float> logits) {
  logits_ = logits;
  list_.clear();
  is_list_ = false;
  temperature_ = 1;
  changed();
}

void Candidates::keep_best(size_t k) {
  if (is_list_) {
    if (k < list_.size()) {
      sort_first(k);
      keep_first(k);
    }
  } else if (k < logits_.size()) {
    select_best(logits_, k, list_);
    is_list_ = true;
    n_sorted_ = list_.size();
  }
}

std::vector<TokenProbability>& Candidates::list() {
  if (!is_list_) {
    make_list();
  }
  return list_;
}

void Candidates::weigh() {
  if (!is_list_) {
    make_list();
  }
  if (weighed_) {
    return;
  }
  float largest = -kInfinity;
  for (const TokenProbability& c : list_) {
    largest = std::max(largest, c.logit);
  }
  for (TokenProbability& c : list_) {
    c.probability = exact_exp((static_cast<double>(c.logit) - static_cast<double>(largest)) / temperature_);
  }
  weighed_ = true;
}

void Candidates::sort_first(size_t n) {
  n = std::min(n, list_.size());
  if (n <= n_sorted_) {
    return;
  }
  const auto begin = list_.begin() + static_cast<std::ptrdiff_t>(n_sorted_);
  const auto end = list_.begin() + static_cast<std::ptrdiff_t>(n);
  if (end != list_.end()) {
    std::nth_element(begin, std::prev(end), list_.end(), better);
  }
  std::sort(begin, end, better);
  n_sorted_ = n;
}

void Candidates::keep_first(size_t n) {
  list_.resize(std::min(n, list_.size()));
  n_sorted_ = std::min(n_sorted_, list_.size());
}

void Candidates::scale_temperature(double t) {
  constexpr double kLeast = std::numeric_limits<double>::min();  // a product of small ones must not become 0
  temperature_ = std::max(temperature_ * t, kLeast);
  weighed_ = false;
}

void Candidates::make_list() {
  list_.resize(logits_.size());
  size_t n = 0;
  for (size_t i = 0; i < logits_.size(); ++i) {
    list_[n] = candidate(i, logits_[i]);
    n += logits_[i] > -kInfinity ? 1 : 0;  // false for NaN, too
  }
  list_.resize(n);
  is_list_ = true;
}

void Candidates::fold_temperature() {
  if (temperature_ == 1) {
    return;
  }
  constexpr double kMax = std::numeric_limits<float>::max();
  for (TokenProbability& c : list()) {
    c.logit = static_cast<float>(std::clamp(static_cast<double>(c.logit) / temperature_, -kMax, kMax));
  }
  temperature_ = 1;
  changed();  // rounding may have made equals of neighbours
}

void Candidates::copy_logits() {
  if (logits_.data() != edited_.data() || logits_.size() != edited_.size()) {
    edited_.assign(logits_.begin(), logits_.end());
    logits_ = edited_;
  }
}

}  // namespace tessera

#include "runtime/sampler_candidates.h"

#include <bit>
#include <cmath>

#include "runtime/sampler_math.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TokenProbability candidate(size_t id, float logit) {
  return {static_cast<int32_t>(id), std::min(logit, std::numeric_limits<float>::max()), 0};
}

float largest_of(const std::vector<TokenProbability>& list) {
  float largest = -kInfinity;
  for (const TokenProbability& c : list) {
    largest = std::max(largest, c.logit);
  }
  return largest;
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

void Candidates::keep_allowed(const TokenMask& mask) {
  const size_t n = std::min(logits_.size(), mask.bits.size() * 64);
  if (static_cast<size_t>(mask.n_allowed) * 16 < n) {  // few: only those are looked at
    for (size_t w = 0; w < mask.bits.size(); ++w) {
      for (uint64_t left = mask.bits[w]; left != 0; left &= left - 1) {
        const size_t id = w * 64 + static_cast<size_t>(std::countr_zero(left));
        if (id < n && logits_[id] > -kInfinity) {
          list_.push_back(candidate(id, logits_[id]));
        }
      }
    }
    is_list_ = true;
    return;
  }
  edited_.resize(logits_.size());
  // Word by word, in the way that touches the fewest single logits.
  for (size_t begin = 0; begin < edited_.size(); begin += 64) {
    const size_t size = std::min<size_t>(64, edited_.size() - begin);
    const uint64_t all = size < 64 ? (uint64_t{1} << size) - 1 : ~uint64_t{0};
    uint64_t bits = begin < n ? mask.bits[begin / 64] & all : 0;
    const float* from = logits_.data() + begin;
    float* to = edited_.data() + begin;
    if (static_cast<size_t>(std::popcount(bits)) * 2 < size) {
      std::fill_n(to, size, -kInfinity);
      for (; bits != 0; bits &= bits - 1) {
        to[std::countr_zero(bits)] = from[std::countr_zero(bits)];
      }
    } else {
      std::copy_n(from, size, to);
      for (bits = ~bits & all; bits != 0; bits &= bits - 1) {
        to[std::countr_zero(bits)] = -kInfinity;
      }
    }
  }
  logits_ = edited_;
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
    make_list(std::numeric_limits<float>::lowest());
  }
  return list_;
}

void Candidates::weigh() {
  if (!is_list_) {
    make_list(std::numeric_limits<float>::lowest());
  }
  if (weighed_) {
    return;
  }
  largest_ = static_cast<double>(largest_of(list_));
  constexpr double kPairs = 700;  // so far down the exponential of two at once goes
  size_t i = 0;
  for (; i + 1 < list_.size(); i += 2) {
    const F64x2 below = {below_best(list_[i]), below_best(list_[i + 1])};
    if (below[0] <= kPairs && below[1] <= kPairs) {
      const F64x2 weights = exact_exp(-below);
      list_[i].probability = weights[0];
      list_[i + 1].probability = weights[1];
    } else {
      list_[i].probability = exact_exp(-below[0]);
      list_[i + 1].probability = exact_exp(-below[1]);
    }
  }
  if (i < list_.size()) {
    list_[i].probability = exact_exp(-below_best(list_[i]));
  }
  weighed_ = true;
}

void Candidates::sort_first(size_t n) {
  n_sorted_ = sort_further(list(), n_sorted_, n, better);
}

void Candidates::keep_first(size_t n) {
  list_.resize(std::min(n, list_.size()));
  n_sorted_ = std::min(n_sorted_, list_.size());
}

void Candidates::scale_temperature(double t) {
  // A product of many must become neither 0 nor infinite.
  temperature_ = std::clamp(temperature_ * t, std::numeric_limits<double>::min(), 1e300);
  weighed_ = false;
}

void Candidates::drop_far_below(double distance) {
  // A weight may be rounded up to that of the distance from a little further away.
  const double span = (distance * (1 + 1e-6) + 1e-9) * temperature_;
  if (is_list_) {
    const double least = static_cast<double>(largest_of(list_)) - span;
    keep_if([least](const TokenProbability& c) { return static_cast<double>(c.logit) >= least; });
    return;
  }
  const int32_t best = largest_logit(logits_);
  const float largest = best < 0 ? 0 : std::min(logits_[static_cast<size_t>(best)], std::numeric_limits<float>::max());
  make_list(std::max(static_cast<double>(largest) - span, static_cast<double>(std::numeric_limits<float>::lowest())));
}

// Of the logits from `least` up; lowest() takes all numbers.
void Candidates::make_list(double least) {
  const auto least_f = static_cast<float>(least);
  list_.resize(logits_.size());
  size_t n = 0;
  for (size_t i = 0; i < logits_.size(); ++i) {
    list_[n] = candidate(i, logits_[i]);
    n += logits_[i] >= least_f ? 1 : 0;  // false for NaN, too
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

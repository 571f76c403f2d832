#include "runtime/sampler_filters.h"

#include <array>
#include <bit>
#include <cmath>

#include "runtime/sampler_math.h"

namespace tessera {
namespace {

constexpr size_t kFirstSorted = 64;

// Of weighed candidates, in nats: -ln p is ln total plus what the logit lies below the best.
double entropy_of(const Candidates& candidates, const std::vector<TokenProbability>& list, double total) {
  double sum = 0;
  for (const TokenProbability& c : list) {
    sum += c.probability * candidates.below_best(c);
  }
  return exact_log(total) + sum / total;
}

// At least how many of the best have weights that reach `wanted`, but for rounding: from the sums over weights that
// share the exponent and the first bits of the mantissa.
size_t estimate_best(const std::vector<TokenProbability>& list, double wanted) {
  constexpr int kMantissaBits = 3;
  constexpr size_t kBuckets = 64U << kMantissaBits;  // down to 2^-63; nothing below it matters
  struct Bucket {
    double weight = 0;
    size_t n = 0;
  };
  std::array<Bucket, kBuckets> buckets;
  constexpr uint64_t kOne = std::bit_cast<uint64_t>(1.0) >> (52 - kMantissaBits);
  for (const TokenProbability& c : list) {
    const uint64_t below = kOne - (std::bit_cast<uint64_t>(c.probability) >> (52 - kMantissaBits));
    Bucket& bucket = buckets[std::min<uint64_t>(below, kBuckets - 1)];
    bucket.weight += c.probability;
    ++bucket.n;
  }
  double sum = 0;
  size_t n = 0;
  for (const Bucket& bucket : buckets) {
    if (sum >= wanted) {
      break;
    }
    sum += bucket.weight;
    n += bucket.n;
  }
  return n;
}

}  // namespace

void keep_top_n_sigma(Candidates& candidates, double n) {
  auto& list = candidates.list();
  if (!(n > 0) || list.size() < 2) {
    return;
  }
  double largest = list[0].logit;
  double sum = 0;
  for (const TokenProbability& c : list) {
    largest = std::max(largest, static_cast<double>(c.logit));
    sum += static_cast<double>(c.logit);
  }
  const double mean = sum / static_cast<double>(list.size());
  double squares = 0;
  for (const TokenProbability& c : list) {
    squares += (static_cast<double>(c.logit) - mean) * (static_cast<double>(c.logit) - mean);
  }
  const double least = largest - n * std::sqrt(squares / static_cast<double>(list.size()));
  candidates.keep_if([least](const TokenProbability& c) { return static_cast<double>(c.logit) >= least; });
}

void keep_top_k(Candidates& candidates, int32_t k) {
  if (k > 0) {
    candidates.keep_best(static_cast<size_t>(k));
  }
}

void keep_top_p(Candidates& candidates, double p, size_t min_keep) {
  if (p >= 1) {
    return;
  }
  candidates.weigh();
  const auto& list = candidates.list();
  const double wanted = p * total_weight(list);
  size_t n_sorted = std::max({estimate_best(list, wanted), min_keep, kFirstSorted});  // no further than it must
  candidates.sort_first(n_sorted);
  double sum = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (i == n_sorted) {
      n_sorted *= 4;
      candidates.sort_first(n_sorted);
    }
    sum += list[i].probability;
    if (sum >= wanted && i + 1 >= min_keep) {
      candidates.keep_first(i + 1);
      return;
    }
  }
}

void keep_min_p(Candidates& candidates, double p, size_t min_keep) {
  if (!(p > 0)) {
    return;
  }
  if (min_keep <= 1) {  // spares weighing most of a large vocabulary
    candidates.drop_far_below(std::max(0.0, -exact_log(std::min(p, 1.0))));
  }
  candidates.weigh();
  const auto& list = candidates.list();
  double largest = 0;
  for (const TokenProbability& c : list) {
    largest = std::max(largest, c.probability);
  }
  const double least = std::min(p, 1.0) * largest;
  const auto n = std::ranges::count_if(list, [least](const TokenProbability& c) { return c.probability >= least; });
  if (static_cast<size_t>(n) < min_keep) {
    candidates.keep_best(min_keep);
    return;
  }
  candidates.keep_if([least](const TokenProbability& c) { return c.probability >= least; });
}

void keep_typical(Candidates& candidates, double p, size_t min_keep) {
  auto& list = candidates.list();
  if (p >= 1 || list.empty()) {
    return;
  }
  candidates.weigh();
  const double total = total_weight(list);
  const double entropy = entropy_of(candidates, list, total);
  const double log_total = exact_log(total);
  // Ties go to the better candidate: without an order of their own they would depend on the sorting's steps.
  struct Typical {
    double distance;
    TokenProbability candidate;
  };
  std::vector<Typical> typical;
  typical.reserve(list.size());
  for (const TokenProbability& c : list) {
    typical.push_back({std::fabs(log_total + candidates.below_best(c) - entropy), c});
  }
  const auto more_typical = [](const Typical& a, const Typical& b) {
    return a.distance < b.distance || (a.distance == b.distance && better(a.candidate, b.candidate));
  };
  double sum = 0;
  size_t n = 0;
  size_t n_sorted = 0;
  while (n < typical.size() && (n < std::max<size_t>(min_keep, 1) || sum < p * total)) {
    if (n == n_sorted) {
      n_sorted = sort_further(typical, n_sorted, std::max(kFirstSorted, n_sorted * 4), more_typical);
    }
    list[n] = typical[n].candidate;
    sum += list[n++].probability;
  }
  candidates.keep_first(n);
  candidates.changed();
}

void exclude_top_choices(Candidates& candidates, double threshold, size_t min_keep) {
  candidates.weigh();
  const auto& list = candidates.list();
  const double least = threshold * total_weight(list);
  const TokenProbability* last = nullptr;
  size_t n_above = 0;
  for (const TokenProbability& c : list) {
    if (c.probability >= least) {
      ++n_above;
      last = last == nullptr || better(*last, c) ? &c : last;
    }
  }
  if (n_above < 2 || list.size() - (n_above - 1) < min_keep) {
    return;
  }
  const TokenProbability kept = *last;
  candidates.keep_if([&](const TokenProbability& c) { return !better(c, kept); });
  candidates.changed();
}

void apply_temperature(Candidates& candidates, double t) {
  if (t > 0) {
    if (t != 1) {
      candidates.scale_temperature(t);
    }
  } else {
    candidates.keep_best(1);
  }
}

void apply_dynamic_temperature(Candidates& candidates, double t, double range, double exponent) {
  if (!(range > 0)) {
    apply_temperature(candidates, t);
    return;
  }
  const auto& list = candidates.list();
  if (list.size() < 2) {
    return;
  }
  candidates.weigh();
  const double entropy = entropy_of(candidates, list, total_weight(list));
  const double share = entropy / exact_log(static_cast<double>(list.size()));
  const double low = std::max(0.0, t - range);
  apply_temperature(candidates, low + (t + range - low) * exact_pow(share, exponent));
}

}  // namespace tessera

#include "runtime/sampler_mirostat.h"

#include <algorithm>
#include <cmath>

#include "runtime/sampler_math.h"

namespace tessera {
namespace {

constexpr double kLn2 = 0.69314718055994531;
constexpr size_t kZipfTokens = 100;  // the best so many give the estimate, as in the reference
constexpr double kMuMax = 1e6;       // beyond it no probability of a double lies

}  // namespace

Mirostat::Mirostat(int version, double tau, double eta)
    : version_(version), tau_(tau), eta_(eta), mu_(std::min(2 * tau, kMuMax)) {}

void Mirostat::filter(Candidates& candidates, size_t n_vocab) const {
  if (candidates.list().size() > 1) {
    version_ == 1 ? keep_by_zipf(candidates, n_vocab) : keep_by_surprise(candidates);
  }
}

void Mirostat::learn(double probability) {
  const double error = -exact_log(probability) / kLn2 - tau_;
  mu_ = std::clamp(mu_ - eta_ * error, -kMuMax, kMuMax);
}

// With p(i) ~ i^-s for the ith best, s is the slope of log p over log i; from it follows how many tokens are expected
// to be within mu bits.
void Mirostat::keep_by_zipf(Candidates& candidates, size_t n_vocab) const {
  candidates.sort_first(kZipfTokens);
  candidates.weigh();
  const auto& list = candidates.list();
  double products = 0;
  double squares = 0;
  for (size_t i = 0; i + 1 < std::min(kZipfTokens, list.size()) && list[i + 1].probability > 0; ++i) {
    const double t = exact_log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * exact_log(list[i].probability / list[i + 1].probability);
    squares += t * t;
  }
  const double s = squares > 0 ? products / squares : std::numeric_limits<double>::infinity();
  const double epsilon = s - 1;
  const auto n = static_cast<double>(n_vocab);
  const double share = std::fabs(epsilon) < 1e-9 ? 1 / exact_log(n) : epsilon / (1 - exact_pow(n, -epsilon));
  const double k = exact_pow(share * exact_pow(2, mu_), 1 / s);
  if (k < static_cast<double>(list.size())) {
    candidates.keep_best(std::max<size_t>(static_cast<size_t>(k), 1));
  }
}

void Mirostat::keep_by_surprise(Candidates& candidates) const {
  candidates.weigh();
  const auto& list = candidates.list();
  const double least = total_weight(list) * exact_pow(2, -mu_);
  if (least > 1) {  // more than the best has
    candidates.keep_best(1);
    return;
  }
  candidates.keep_if([least](const TokenProbability& c) { return c.probability >= least; });
}

}  // namespace tessera

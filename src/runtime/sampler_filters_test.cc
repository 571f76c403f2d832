// Each step against distributions worked out by hand, at its neutral value, and where numbers are extreme.

#include "runtime/sampler_filters.h"

#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "runtime/sampler_math.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kHuge = std::numeric_limits<float>::max();

using Step = std::function<void(Candidates&)>;

std::vector<int32_t> ids_after(const std::vector<float>& logits, const Step& step) {
  Candidates candidates;
  candidates.reset(logits);
  step(candidates);
  std::vector<int32_t> ids;
  for (const TokenProbability& t : candidates.list()) {
    ids.push_back(t.id);
  }
  return ids;
}

std::vector<double> probabilities_after(const std::vector<float>& logits, const Step& step) {
  Candidates candidates;
  candidates.reset(logits);
  step(candidates);
  candidates.weigh();
  std::vector<double> p(logits.size(), 0);
  double total = 0;
  for (const TokenProbability& t : candidates.list()) {
    total += t.probability;
  }
  for (const TokenProbability& t : candidates.list()) {
    p[static_cast<size_t>(t.id)] = t.probability / total;
  }
  return p;
}

std::vector<float> logits_of(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) {
    logits.push_back(static_cast<float>(std::log(p)));
  }
  return logits;
}

TEST(SamplerFilters, TopNSigma) {
  // Mean 3, variance (9 + 1 + 1 + 9) / 4 = 5, best 6: at n = 1 the limit is 6 - 2.236.
  const std::vector<float> logits = {0, 2, 4, 6};
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { keep_top_n_sigma(c, 1); }), UnorderedElementsAre(2, 3));
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { keep_top_n_sigma(c, 1.7); }), UnorderedElementsAre(2, 3));
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { keep_top_n_sigma(c, 1.8); }), UnorderedElementsAre(1, 2, 3));
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { keep_top_n_sigma(c, 0.01); }), ElementsAre(3));
  // What is no number counts for neither mean nor deviation.
  EXPECT_THAT(ids_after({0, -kInf, 2, kNan, 4, 6}, [](Candidates& c) { keep_top_n_sigma(c, 1.7); }),
              UnorderedElementsAre(4, 5));
  // Temperature changes nothing: mean and deviation scale alike.
  EXPECT_THAT(ids_after(logits,
                        [](Candidates& c) {
                          apply_temperature(c, 0.1);
                          keep_top_n_sigma(c, 1.8);
                        }),
              UnorderedElementsAre(1, 2, 3));
}

TEST(SamplerFilters, Typical) {
  // Entropy of (.4 .3 .2 .1) is 1.27985; surprises .916 1.204 1.609 2.303, their distances .364 .076 .330 1.023: the
  // order is 1, 2, 0, 3 with sums .3 .5 .9 1.
  const std::vector<float> logits = logits_of({0.4, 0.3, 0.2, 0.1});
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { keep_typical(c, 0.29, 0); }), ElementsAre(1));
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { keep_typical(c, 0.31, 0); }), ElementsAre(1, 2));
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { keep_typical(c, 0.51, 0); }), ElementsAre(1, 2, 0));
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { keep_typical(c, 0.91, 0); }), ElementsAre(1, 2, 0, 3));
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { keep_typical(c, 0, 3); }), ElementsAre(1, 2, 0));
  EXPECT_THAT(ids_after({5, 5, 5, 5}, [](Candidates& c) { keep_typical(c, 0.6, 0); }), ElementsAre(0, 1, 2));
  EXPECT_THAT(ids_after({0, -2000}, [](Candidates& c) { keep_typical(c, 0.5, 0); }), ElementsAre(0));
}

TEST(SamplerFilters, ExcludeTopChoices) {
  const std::vector<float> logits = logits_of({0.1, 0.4, 0.2, 0.3});
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { exclude_top_choices(c, 0.15, 0); }), UnorderedElementsAre(0, 2));
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { exclude_top_choices(c, 0.25, 0); }), UnorderedElementsAre(0, 2, 3));
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { exclude_top_choices(c, 0.35, 0); }).size(), 4U);  // one above
  EXPECT_EQ(ids_after(logits, [](Candidates& c) { exclude_top_choices(c, 0.45, 0); }).size(), 4U);    // none
  EXPECT_EQ(ids_after(logits, [](Candidates& c) { exclude_top_choices(c, 0.15, 3); }).size(), 4U);    // 2 would be left
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { exclude_top_choices(c, 0, 0); }), ElementsAre(0));
  // Of equals the one with the highest id stays.
  EXPECT_THAT(ids_after({1, 1, 1}, [](Candidates& c) { exclude_top_choices(c, 0.3, 0); }), ElementsAre(2));
  // Those left are weighed anew: the best that is gone must not leave only zeros.
  EXPECT_THAT(probabilities_after({0, -2000, -2000}, [](Candidates& c) { exclude_top_choices(c, 0, 0); }),
              ElementsAre(0, 0, 1));
}

TEST(SamplerFilters, DynamicTemperature) {
  // Equal logits: entropy is at its maximum, so t + range; far apart: 0, so t - range.
  const std::vector<float> apart = {0, -1};
  const double entropy = [] {
    const double p = 1 / (1 + std::exp(-1.0));
    return -(p * std::log(p) + (1 - p) * std::log(1 - p)) / std::log(2.0);
  }();
  for (const double exponent : {0.5, 1.0, 2.0}) {
    const double t = 0.5 + (1.5 - 0.5) * std::pow(entropy, exponent);
    EXPECT_NEAR(probabilities_after(apart, [&](Candidates& c) { apply_dynamic_temperature(c, 1, 0.5, exponent); })[0],
                1 / (1 + std::exp(-1 / t)), 1e-12);
  }
  // Never below 0; and 0 keeps the best alone.
  EXPECT_THAT(probabilities_after({0, -3000}, [](Candidates& c) { apply_dynamic_temperature(c, 0.5, 2, 1); }),
              ElementsAre(1, 0));
  EXPECT_THAT(ids_after({1, 3, 3}, [](Candidates& c) { apply_temperature(c, 0); }), ElementsAre(1));
  EXPECT_THAT(ids_after({1, 3, 3}, [](Candidates& c) { apply_temperature(c, static_cast<double>(kNan)); }),
              ElementsAre(1));
}

TEST(SamplerFilters, MinKeep) {
  const std::vector<float> logits = logits_of({0.1, 0.4, 0.2, 0.3});
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { keep_top_p(c, 0.1, 3); }), ElementsAre(1, 3, 2));
  EXPECT_THAT(ids_after(logits, [](Candidates& c) { keep_min_p(c, 0.9, 3); }), ElementsAre(1, 3, 2));
  EXPECT_EQ(ids_after(logits, [](Candidates& c) { keep_min_p(c, 0.9, 9); }).size(), 4U);
  EXPECT_EQ(ids_after(logits, [](Candidates& c) { keep_top_p(c, 0.1, 9); }).size(), 4U);
}

const std::vector<std::pair<const char*, Step>> kNeutral = {
    {"top_n_sigma -1", [](Candidates& c) { keep_top_n_sigma(c, -1); }},
    {"top_n_sigma 0", [](Candidates& c) { keep_top_n_sigma(c, 0); }},
    {"top_k 0", [](Candidates& c) { keep_top_k(c, 0); }},
    {"top_k -1", [](Candidates& c) { keep_top_k(c, -1); }},
    {"top_k all", [](Candidates& c) { keep_top_k(c, 300); }},
    {"top_p 1", [](Candidates& c) { keep_top_p(c, 1, 0); }},
    {"min_p 0", [](Candidates& c) { keep_min_p(c, 0, 0); }},
    {"typical 1", [](Candidates& c) { keep_typical(c, 1, 0); }},
    {"temperature 1", [](Candidates& c) { apply_temperature(c, 1); }},
    {"dynatemp 0", [](Candidates& c) { apply_dynamic_temperature(c, 1, 0, 3); }},
};

TEST(SamplerFilters, NeutralValuesChangeNothing) {
  std::mt19937 random(8);
  std::vector<float> logits(300);
  for (float& x : logits) {
    x = static_cast<float>(random() % 50) / 4;
  }
  std::vector<int32_t> all(logits.size());
  std::iota(all.begin(), all.end(), 0);
  const std::vector<double> plain = probabilities_after(logits, [](Candidates&) {});
  for (const auto& [name, step] : kNeutral) {
    EXPECT_EQ(ids_after(logits, step), all) << name;
    EXPECT_EQ(probabilities_after(logits, step), plain) << name;
  }
}

const std::vector<std::pair<const char*, Step>> kAtWork = {
    {"top_n_sigma", [](Candidates& c) { keep_top_n_sigma(c, 1); }},
    {"top_k", [](Candidates& c) { keep_top_k(c, 3); }},
    {"top_p", [](Candidates& c) { keep_top_p(c, 0.5, 0); }},
    {"min_p", [](Candidates& c) { keep_min_p(c, 0.5, 0); }},
    {"typical", [](Candidates& c) { keep_typical(c, 0.5, 0); }},
    {"xtc", [](Candidates& c) { exclude_top_choices(c, 0.1, 0); }},
    {"temperature", [](Candidates& c) { apply_temperature(c, 0.7); }},
    {"cold", [](Candidates& c) { apply_temperature(c, 1e-38); }},
    {"dynatemp", [](Candidates& c) { apply_dynamic_temperature(c, 0.7, 0.3, 2); }},
    {"edit", [](Candidates& c) { c.edit(std::vector<int32_t>{-5, 0, 2, 999}, [](float x, size_t) { return x - 1; }); }},
};

// Any two steps after each other on unpleasant logits: something is left if there was anything, and probabilities are
// numbers that sum to 1.
TEST(SamplerFilters, ExtremeLogits) {
  const std::vector<std::vector<float>> inputs = {{},
                                                  {1},
                                                  {kNan, -kInf},
                                                  {kInf, kInf, 0, kNan},
                                                  {-kHuge, kHuge, 0, -kHuge},
                                                  {kNan, 5, -kInf, 5, 5},
                                                  {-kHuge, -kHuge, -kHuge},
                                                  {0, 0, 0, 0, 0, 0, 0, 0},
                                                  {1e-45F, -1e-45F, 0, -0.0F}};
  for (const auto& logits : inputs) {
    const bool any = std::ranges::any_of(logits, [](float x) { return x > -kInf; });
    for (const auto& first : kAtWork) {
      for (const auto& second : kAtWork) {
        SCOPED_TRACE(testing::Message() << testing::PrintToString(logits) << " " << first.first << " " << second.first);
        const auto both = [&](Candidates& c) {
          first.second(c);
          second.second(c);
        };
        EXPECT_EQ(ids_after(logits, both).empty(), !any);
        const std::vector<double> p = probabilities_after(logits, both);
        if (any) {
          EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1, 1e-12);
        }
      }
    }
  }
}

TEST(SamplerFilters, EditsSeeLogitsAtTheirTemperature) {
  const std::vector<float> logits = {1, 2, 3};
  Candidates c;
  c.reset(logits);
  apply_temperature(c, 0.5);
  c.edit(std::vector<int32_t>{1}, [](float logit, size_t) { return logit + 10; });
  EXPECT_EQ(c.list()[1].logit, 14);
  EXPECT_EQ(c.list()[2].logit, 6);
  c.edit(std::vector<int32_t>{0, 1}, [](float, size_t i) { return i == 0 ? -kInf : kNan; });
  ASSERT_EQ(c.list().size(), 2U);  // -inf drops, NaN changes nothing
  EXPECT_EQ(c.list()[0].logit, 14);
}

TEST(SamplerMath, IsThatOfTheLibrary) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> x(-745, 709);
  for (int i = 0; i < 100000; ++i) {
    const double e = x(random);
    ASSERT_NEAR(exact_exp(e), std::exp(e), std::exp(e) * 5e-16 + 1e-323) << e;
    const double v = std::exp(e / 1.01);
    ASSERT_NEAR(exact_log(v), std::log(v), std::fabs(std::log(v)) * 5e-16) << v;
  }
  for (const double v : {1.0, 1 + 1e-15, 1 - 1e-15, 0.75, 1.4142135623730951, 5e-324, 1.7e308}) {
    EXPECT_NEAR(exact_log(v), std::log(v), std::fabs(std::log(v)) * 5e-16) << v;
  }
  std::uniform_real_distribution<double> pairs(-700, 700);
  for (int i = 0; i < 100000; ++i) {
    const F64x2 both = {pairs(random), i % 2 == 0 ? pairs(random) : pairs(random) / 100};
    const F64x2 found = exact_exp(both);
    ASSERT_EQ(found[0], exact_exp(both[0])) << both[0];
    ASSERT_EQ(found[1], exact_exp(both[1])) << both[1];
  }
  EXPECT_EQ(exact_exp(0), 1);
  EXPECT_EQ(exact_exp(-1e9), 0);
  EXPECT_EQ(exact_exp(std::nan("")), 0);
  EXPECT_TRUE(std::isinf(exact_exp(1e9)));
  EXPECT_EQ(exact_log(1), 0);
  EXPECT_EQ(exact_log(0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(exact_pow(0, 0), 1);
  EXPECT_EQ(exact_pow(0, 2), 0);
  EXPECT_NEAR(exact_pow(1.75, 10), std::pow(1.75, 10), 1e-12);
}

}  // namespace
}  // namespace tessera

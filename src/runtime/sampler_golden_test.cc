// Every step against the reference engine: what is left, and with which probabilities, after each step of a chain.
// tests/data/goldens/sampling holds the cases and what the reference made of them.

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/engine.h"
#include "runtime/sampler.h"

namespace tessera {
namespace {

using nlohmann::json;

// The reference computes in f32: sums of 150 probabilities, each within 1e-6.
constexpr double kTolerance = 2e-5;

struct Case {
  SamplerOptions options;
  std::vector<float> logits;
  std::vector<int32_t> history;
  std::vector<std::vector<int32_t>> breakers;
  std::string model;
  json after;  // [[step or token drawn, [ids, probabilities]], ...]
};

std::vector<Case> read_cases(const std::string& name = "steps") {
  std::vector<Case> cases;
  std::ifstream file(std::string(TESSERA_TEST_DATA) + "/goldens/sampling/" + name + ".jsonl");
  for (std::string line; std::getline(file, line);) {
    const json j = json::parse(line);
    Case c;
    for (const auto& [key, value] : j["options"].items()) {
      if (key != "samplers") {
        const SamplerSetting* setting = find_sampler_setting(key);
        EXPECT_NE(setting, nullptr) << key;
        const Status set = set_sampler_option(c.options, *setting, value.get<double>());
        EXPECT_TRUE(set.ok()) << set.message();
      }
    }
    if (c.options.mirostat == 0) {
      auto chain = parse_sampler_names(j["options"]["samplers"].get<std::string>());
      EXPECT_TRUE(chain.ok()) << chain.status().message();
      c.options.samplers = std::move(chain).value();
    }
    c.logits = j["logits"].get<std::vector<float>>();
    c.history = j.value("history", std::vector<int32_t>());
    c.breakers = j.value("breakers", std::vector<std::vector<int32_t>>());
    c.model = j.value("model", "");
    c.after = j["after"];
    cases.push_back(std::move(c));
  }
  return cases;
}

// Ids must be equal, probabilities nearly.
void expect_left(std::span<const TokenProbability> ours, const json& theirs) {
  std::vector<TokenProbability> sorted(ours.begin(), ours.end());
  std::ranges::sort(sorted, {}, &TokenProbability::id);
  std::vector<int32_t> ids;
  for (const TokenProbability& t : sorted) {
    ids.push_back(t.id);
  }
  ASSERT_EQ(ids, theirs[0].get<std::vector<int32_t>>());
  for (size_t i = 0; i < sorted.size(); ++i) {
    ASSERT_NEAR(sorted[i].probability, theirs[1][i].get<double>(), kTolerance) << "token " << ids[i];
  }
}

TEST(SamplerGolden, EveryStepLeavesWhatTheReferenceLeaves) {
  size_t n_steps = 0;
  int line = 0;
  for (const Case& c : read_cases()) {
    ++line;
    if (c.options.mirostat != 0 || c.options.adaptive_target >= 0) {
      continue;
    }
    DryBreakers breakers;
    for (const auto& sequence : c.breakers) {
      breakers.add(sequence);
    }
    SamplerOptions options = c.options;
    for (size_t n = 1; n <= c.options.samplers.size(); ++n) {
      SCOPED_TRACE(testing::Message() << "line " << line << " step " << n << " " << c.after[n - 1][0]);
      options.samplers.assign(c.options.samplers.begin(), c.options.samplers.begin() + static_cast<std::ptrdiff_t>(n));
      Sampler sampler(options, breakers);
      sampler.accept(c.history);
      ASSERT_EQ(c.after[n - 1][0].get<std::string>(), sampler_step_name(options.samplers.back()));
      ASSERT_NO_FATAL_FAILURE(expect_left(sampler.distribution(c.logits), c.after[n - 1][1]));
      ++n_steps;
    }
  }
  EXPECT_GT(n_steps, 300U);
}

// The reference's draws are its own; we let ours learn from them.
TEST(SamplerGolden, MirostatFollowsTheReferencesDraws) {
  size_t n_draws = 0;
  int line = 0;
  for (const Case& c : read_cases()) {
    ++line;
    if (c.options.mirostat == 0) {
      continue;
    }
    Mirostat mirostat(c.options.mirostat, static_cast<double>(c.options.mirostat_tau),
                      static_cast<double>(c.options.mirostat_eta));
    for (const json& draw : c.after) {
      SCOPED_TRACE(testing::Message() << "line " << line << " draw " << n_draws);
      Candidates candidates;
      candidates.reset(c.logits);
      candidates.scale_temperature(static_cast<double>(c.options.temperature));
      mirostat.filter(candidates, c.logits.size());
      candidates.weigh();
      auto& list = candidates.list();
      double total = 0;
      for (const TokenProbability& t : list) {
        total += t.probability;
      }
      double chosen = 0;
      for (TokenProbability& t : list) {
        t.probability /= total;
        chosen = t.id == draw[0].get<int32_t>() ? t.probability : chosen;
      }
      ASSERT_NO_FATAL_FAILURE(expect_left(list, draw[1]));
      ASSERT_GT(chosen, 0);
      mirostat.learn(chosen);
      ++n_draws;
    }
  }
  EXPECT_GE(n_draws, 60U);
}

TEST(SamplerGolden, AdaptivePFollowsTheReferencesDraws) {
  size_t n_draws = 0;
  int line = 0;
  for (const Case& c : read_cases()) {
    ++line;
    if (c.options.adaptive_target < 0) {
      continue;
    }
    AdaptiveP adaptive(static_cast<double>(c.options.adaptive_target), static_cast<double>(c.options.adaptive_decay));
    for (const json& draw : c.after) {
      SCOPED_TRACE(testing::Message() << "line " << line << " draw " << n_draws);
      Candidates candidates;
      candidates.reset(c.logits);
      candidates.scale_temperature(static_cast<double>(c.options.temperature));
      candidates.list();
      candidates.weigh();
      adaptive.reweigh(candidates);
      auto& list = candidates.list();
      const double total = std::accumulate(list.begin(), list.end(), 0.0,
                                           [](double sum, const TokenProbability& t) { return sum + t.probability; });
      for (TokenProbability& t : list) {
        t.probability /= total;
      }
      ASSERT_NO_FATAL_FAILURE(expect_left(list, draw[1]));
      const auto drawn = std::ranges::find(list, draw[0].get<int32_t>(), &TokenProbability::id);
      ASSERT_NE(drawn, list.end());
      adaptive.learn(static_cast<size_t>(drawn - list.begin()));
      ++n_draws;
    }
  }
  EXPECT_GE(n_draws, 60U);
}

std::shared_ptr<Model> vocabulary_of(const std::string& name) {
  ModelOptions options;
  options.path = std::string(TESSERA_TEST_DATA) + "/tiny/" + name + ".gguf";
  options.vocab_only = true;
  auto loaded = Model::load(options);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return loaded.ok() ? std::move(loaded).value() : nullptr;
}

TEST(SamplerGolden, InfillLeavesWhatTheReferenceLeaves) {
  std::map<std::string, std::shared_ptr<Model>> models;
  size_t n_ends = 0;
  size_t n_texts = 0;
  int line = 0;
  for (const Case& c : read_cases("infill")) {
    SCOPED_TRACE(testing::Message() << "line " << ++line);
    std::shared_ptr<Model>& model = models[c.model];
    model = model == nullptr ? vocabulary_of(c.model) : model;
    ASSERT_NE(model, nullptr);
    Sampler sampler(c.options, {}, std::nullopt, &model->tokenizer());
    const auto left = sampler.distribution(c.logits);
    ASSERT_NO_FATAL_FAILURE(expect_left(left, c.after.back()[1]));
    const bool ends = std::ranges::all_of(
        left, [&](const TokenProbability& t) { return model->tokenizer().is_end_of_generation(t.id); });
    (ends ? n_ends : n_texts) += 1;
  }
  EXPECT_GE(n_ends, 8U);
  EXPECT_GE(n_texts, 8U);
}

TEST(SamplerGolden, DryFindsBreakersInRealTokensAsTheReferenceDoes) {
  std::map<std::string, std::shared_ptr<Model>> models;
  std::ifstream file(std::string(TESSERA_TEST_DATA) + "/goldens/sampling/dry_texts.jsonl");
  size_t n_penalised = 0;
  for (std::string line; std::getline(file, line);) {
    SCOPED_TRACE(line);
    const json j = json::parse(line);
    const json& stated = j["case"];
    std::shared_ptr<Model>& model = models[stated["model"]];
    if (model == nullptr) {
      model = vocabulary_of(stated["model"]);
      ASSERT_NE(model, nullptr);
    }
    const auto breakers = DryBreakers::create(model->tokenizer(), stated["breakers"].get<std::vector<std::string>>());
    ASSERT_TRUE(breakers.ok());
    const std::vector<float> logits(static_cast<size_t>(model->tokenizer().n_vocab()), 0.0F);
    Candidates candidates;
    candidates.reset(logits);
    std::vector<int32_t> scratch;
    DryPenalty{1, 1.75F, 2, 500}.apply(candidates, j["ids"].get<std::vector<int32_t>>(), *breakers, scratch);
    std::map<int32_t, double> expected;
    for (const json& penalty : j["penalties"]) {
      expected[penalty[0].get<int32_t>()] = penalty[1].get<double>();
    }
    for (const TokenProbability& t : candidates.list()) {
      const double penalty = expected[t.id];
      ASSERT_NEAR(-static_cast<double>(t.logit), penalty, penalty * 1e-5) << "token " << t.id;
      n_penalised += penalty > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(n_penalised, 40U);
}

}  // namespace
}  // namespace tessera

#include "sampling_flags.h"

#include <cstdio>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "flag_table.h"

namespace tessera {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<SamplerOptions> parse(std::vector<const char*> args, const SamplerOptions& defaults = {}) {
  std::vector<const char*> all = {"run", "-m", "m.gguf"};
  all.insert(all.end(), args.begin(), args.end());
  ASSIGN_OR_RETURN(const ParsedFlags flags, parse_flags(tessera_flags(), all));
  return sampler_options(flags, defaults);
}

TEST(SamplingFlags, WithoutFlagsTheDefaultsStand) {
  const auto options = parse({});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(sampler_options_json(*options), sampler_options_json(SamplerOptions()));
  EXPECT_EQ(options->seed, kRandomSeed);
}

TEST(SamplingFlags, OneGrammarOrSchema) {
  const std::string path = ::testing::TempDir() + "sampling_flags_test." + std::to_string(getpid());
  std::ofstream(path) << "root ::= [a]\n";
  EXPECT_EQ(parse({"--grammar", "root ::= [b]"})->grammar, "root ::= [b]");
  EXPECT_EQ(parse({"--grammar-file", path.c_str()})->grammar, "root ::= [a]\n");
  EXPECT_EQ(parse({"-j", "{}"})->json_schema, "{}");
  EXPECT_EQ(parse({"-jf", path.c_str()})->json_schema, "root ::= [a]\n");
  EXPECT_THAT(parse({"-j", "{}", "--grammar-file", path.c_str()}).status().message(), HasSubstr("use one of"));
  EXPECT_THAT(parse({"--grammar", " "}).status().message(), HasSubstr("--grammar: it is empty"));
  EXPECT_THAT(parse({"--grammar-file", "/nowhere/x"}).status().message(), HasSubstr("/nowhere/x"));
  (void)std::remove(path.c_str());
}

// The flag table states defaults and ranges for people; the settings' own must be the same.
TEST(SamplingFlags, TableAndSettingsAgree) {
  const SamplerOptions defaults;
  size_t n = 0;
  for (const FlagRow& row : tessera_flags().flags) {
    const SamplerSetting* setting = find_sampler_setting(flag_json_name(row));
    if (setting == nullptr) {
      continue;
    }
    ++n;
    SCOPED_TRACE(row.name);
    SamplerOptions parsed;
    ASSERT_TRUE(set_sampler_option(parsed, *setting, std::stod(std::string(row.default_text))).ok());
    EXPECT_EQ(get_sampler_option(parsed, *setting), get_sampler_option(defaults, *setting));
    constexpr double kNoLimit = 1e9;  // beyond it the table says nothing
    EXPECT_EQ(std::isinf(row.min) ? -kNoLimit : row.min, std::max(setting->min, -kNoLimit));
    EXPECT_EQ(std::isinf(row.max) ? kNoLimit : row.max, std::min(setting->max, kNoLimit));
  }
  EXPECT_EQ(n, sampler_settings().size() - 1);  // min_keep is for requests only
}

TEST(SamplingFlags, EveryNumberArrives) {
  const auto options = parse({"--temp",
                              "0.5",
                              "--dynatemp-range",
                              "0.25",
                              "--dynatemp-exp",
                              "2",
                              "--top-k",
                              "7",
                              "--top-p",
                              "0.5",
                              "--min-p",
                              "0.25",
                              "--typical",
                              "0.75",
                              "--top-n-sigma",
                              "1.5",
                              "--xtc-probability",
                              "0.5",
                              "--xtc-threshold",
                              "0.25",
                              "--repeat-last-n",
                              "-1",
                              "--repeat-penalty",
                              "1.25",
                              "--presence-penalty",
                              "0.5",
                              "--frequency-penalty",
                              "-0.5",
                              "--dry-multiplier",
                              "0.75",
                              "--dry-base",
                              "1.5",
                              "--dry-allowed-length",
                              "3",
                              "--dry-penalty-last-n",
                              "100",
                              "--mirostat",
                              "2",
                              "--mirostat-lr",
                              "0.25",
                              "--mirostat-ent",
                              "4",
                              "--adaptive-target",
                              "0.5",
                              "--adaptive-decay",
                              "0.75",
                              "--seed",
                              "9"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  json found = json::parse(sampler_options_json(*options));
  for (const char* other : {"samplers", "dry_sequence_breakers", "logit_bias", "grammar", "json_schema"}) {
    found.erase(other);
  }
  EXPECT_EQ(found, json::parse(R"({"temperature": 0.5, "dynatemp_range": 0.25, "dynatemp_exponent": 2, "top_k": 7,
      "top_p": 0.5, "min_p": 0.25, "typical_p": 0.75, "top_n_sigma": 1.5, "xtc_probability": 0.5, "xtc_threshold": 0.25,
      "min_keep": 0, "repeat_last_n": -1, "repeat_penalty": 1.25, "presence_penalty": 0.5, "frequency_penalty": -0.5,
      "dry_multiplier": 0.75, "dry_base": 1.5, "dry_allowed_length": 3, "dry_penalty_last_n": 100, "mirostat": 2,
      "mirostat_eta": 0.25, "mirostat_tau": 4, "adaptive_target": 0.5, "adaptive_decay": 0.75})"));
  EXPECT_EQ(options->seed, 9U);
}

TEST(SamplingFlags, FlagsComeBeforeTheModelsOwn) {
  SamplerOptions recommended;
  recommended.temperature = 1;
  recommended.top_k = 64;
  recommended.samplers = {SamplerStep::kTopK};
  const auto options = parse({"--top-k", "40"}, recommended);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->temperature, 1);
  EXPECT_EQ(options->top_k, 40);  // given, though it is the flag's default
  EXPECT_EQ(options->samplers, recommended.samplers);
}

TEST(SamplingFlags, ChainsByNameAndLetter) {
  const auto by_name = parse({"--samplers", "top-k;temp"});
  ASSERT_TRUE(by_name.ok());
  EXPECT_THAT(by_name->samplers, ElementsAre(SamplerStep::kTopK, SamplerStep::kTemperature));
  const auto last = parse({"--samplers", "top_k", "--sampling-seq", "mt"});
  ASSERT_TRUE(last.ok());
  EXPECT_THAT(last->samplers, ElementsAre(SamplerStep::kMinP, SamplerStep::kTemperature));
  const auto none = parse({"--samplers="});
  ASSERT_TRUE(none.ok()) << none.status().message();
  EXPECT_THAT(none->samplers, IsEmpty());
  EXPECT_EQ(parse({"--sampler-seq", "edskypmxt"})->samplers, SamplerOptions::default_chain());
  for (const FlagRow& row : tessera_flags().flags) {
    if (row.name == "samplers") {
      EXPECT_EQ(parse_sampler_names(row.default_text).value(), SamplerOptions::default_chain());
    }
    if (row.name == "sampling-seq") {
      EXPECT_EQ(parse_sampler_letters(row.default_text).value(), SamplerOptions::default_chain());
    }
  }
}

TEST(SamplingFlags, BiasesAndBreakersAddUp) {
  const auto options = parse({"-l", "5+1.5", "--logit-bias", "2-inf", "-l", "7-2", "--dry-sequence-breaker", "\\n\\x",
                              "--dry-sequence-breaker", "end"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  const json found = json::parse(sampler_options_json(*options));
  EXPECT_EQ(found["logit_bias"], json::parse("[[5, 1.5], [2, null], [7, -2.0]]"));
  EXPECT_EQ(found["dry_sequence_breakers"], json::parse(R"(["\n\\x", "end"])"));
  EXPECT_THAT(parse({"--dry-sequence-breaker", "none"})->dry_sequence_breakers, IsEmpty());
}

TEST(SamplingFlags, ErrorsNameTheFlag) {
  for (const auto& [args, part] : std::initializer_list<std::pair<std::vector<const char*>, const char*>>{
           {{"--logit-bias", "x"}, "--logit-bias: 'x'"},
           {{"--samplers", "top_k;topk"}, "--samplers: 'topk'"},
           {{"--sampling-seq", "kq"}, "--sampling-seq: 'q'"},
           {{"--temp", "1e300"}, "--temp: temperature is 1e+300"},
           {{"--top-k", "3000000000"}, "--top-k: top_k is 3"},
           {{"--mirostat", "3"}, "--mirostat"}}) {
    const auto options = parse(args);
    ASSERT_FALSE(options.ok()) << args[0];
    EXPECT_EQ(options.status().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(options.status().message(), HasSubstr(part));
  }
}

}  // namespace
}  // namespace tessera

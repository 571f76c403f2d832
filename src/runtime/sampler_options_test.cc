#include "runtime/sampler_options.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/sampler_json.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SamplerOptions, DefaultChainIsTheReferences) {
  std::string names;
  std::string letters;
  for (const SamplerStep step : SamplerOptions().samplers) {
    names += std::string(names.empty() ? "" : ";") + std::string(sampler_step_name(step));
    letters += sampler_step_letter(step);
  }
  EXPECT_EQ(names, "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature");
  EXPECT_EQ(letters, "edskypmxt");
  EXPECT_EQ(parse_sampler_names(names).value(), SamplerOptions::default_chain());
  EXPECT_EQ(parse_sampler_letters(letters).value(), SamplerOptions::default_chain());
}

TEST(SamplerOptions, NamesAndNumbersAreTheReferences) {
  const SamplerOptions o;
  std::string text;
  for (const SamplerSetting& s : sampler_settings()) {
    text += std::string(s.name) + "=" + std::to_string(std::lround(get_sampler_option(o, s) * 100)) + " ";
  }
  EXPECT_EQ(text,
            "temperature=80 dynatemp_range=0 dynatemp_exponent=100 top_k=4000 top_p=95 min_p=5 typical_p=100 "
            "top_n_sigma=-100 xtc_probability=0 xtc_threshold=10 min_keep=0 repeat_last_n=6400 repeat_penalty=100 "
            "frequency_penalty=0 presence_penalty=0 dry_multiplier=0 dry_base=175 dry_allowed_length=200 "
            "dry_penalty_last_n=6400 mirostat=0 mirostat_tau=500 mirostat_eta=10 adaptive_target=-100 "
            "adaptive_decay=90 ");
  EXPECT_EQ(find_sampler_setting("top_q"), nullptr);
  EXPECT_EQ(find_sampler_setting(""), nullptr);
}

TEST(SamplerOptions, EverySettingReachesAMemberOfItsOwn) {
  std::set<std::string_view> meta_keys;
  for (const SamplerSetting& s : sampler_settings()) {
    SamplerOptions o;
    const double value = s.max > 2 ? 3 : static_cast<double>(static_cast<float>(s.max));  // also of 0.99
    ASSERT_TRUE(set_sampler_option(o, s, value).ok()) << s.name;
    for (const SamplerSetting& other : sampler_settings()) {
      const double expected = other.name == s.name ? value : get_sampler_option(SamplerOptions(), other);
      EXPECT_EQ(get_sampler_option(o, other), expected) << s.name << " " << other.name;
    }
    EXPECT_TRUE(s.meta_key.empty() || meta_keys.insert(s.meta_key).second) << s.meta_key;
  }
}

TEST(SamplerOptions, RefusesWhatIsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, double>>{{"top_p", 1.01},
                                                                                         {"top_p", -0.1},
                                                                                         {"temperature", nan},
                                                                                         {"temperature", 1e39},
                                                                                         {"temperature", -1},
                                                                                         {"top_k", 1.5},
                                                                                         {"top_k", 3e9},
                                                                                         {"mirostat", 3},
                                                                                         {"repeat_last_n", -2}}) {
    SamplerOptions o;
    const Status status = set_sampler_option(o, *find_sampler_setting(name), value);
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument) << name << value;
    EXPECT_THAT(status.message(), HasSubstr(name));
    EXPECT_EQ(get_sampler_option(o, *find_sampler_setting(name)),
              get_sampler_option(SamplerOptions(), *find_sampler_setting(name)));
  }
}

TEST(SamplerOptions, ErrorsShowLimitsThatPeopleSet) {
  const auto error_of = [](std::string_view name, double value) {
    SamplerOptions o;
    return set_sampler_option(o, *find_sampler_setting(name), value).message();
  };
  EXPECT_EQ(error_of("temperature", -1), "temperature is -1; it is a number of at least 0");
  EXPECT_EQ(error_of("top_k", -2), "top_k is -2; it is a whole number of at least -1");
  EXPECT_EQ(error_of("top_p", 2), "top_p is 2; it is a number from 0 to 1");
  EXPECT_EQ(error_of("frequency_penalty", std::nan("")), "frequency_penalty is nan; it is a number");
  EXPECT_EQ(error_of("top_k", 3e9), "top_k is 3000000000; it is a whole number from -1 to 2147483647");
}

TEST(SamplerOptions, NumbersOfReportsAreThoseThatPeopleWrote) {
  const nlohmann::ordered_json json = sampler_settings_json(SamplerOptions());
  EXPECT_EQ(json["temperature"].dump(), "0.8");
  EXPECT_EQ(json["top_p"].dump(), "0.95");
  EXPECT_EQ(json["top_k"].dump(), "40");
}

TEST(SamplerOptions, ChainsTakeOtherNamesToo) {
  const auto chain = parse_sampler_names("temp;nucleus;typical-p;typ;min-p;top-n-sigma;xtc;dry;penalties;top-k;top_k");
  ASSERT_TRUE(chain.ok()) << chain.status().message();
  EXPECT_THAT(*chain,
              ElementsAre(SamplerStep::kTemperature, SamplerStep::kTopP, SamplerStep::kTypicalP, SamplerStep::kTypicalP,
                          SamplerStep::kMinP, SamplerStep::kTopNSigma, SamplerStep::kXtc, SamplerStep::kDry,
                          SamplerStep::kPenalties, SamplerStep::kTopK, SamplerStep::kTopK));
  EXPECT_THAT(parse_sampler_names("").value(), IsEmpty());
  EXPECT_THAT(parse_sampler_letters("").value(), IsEmpty());
  for (const char* bad : {"topk", "top_k;;top_p", ";", "top_k top_p", "TOP_K", "typical typ"}) {
    EXPECT_EQ(parse_sampler_names(bad).status().code(), ErrorCode::kInvalidArgument) << bad;
  }
  EXPECT_THAT(parse_sampler_letters("kz").status().message(), HasSubstr("'z' is no sampling step"));
  EXPECT_FALSE(parse_sampler_letters(std::string(65, 'k')).ok());
  EXPECT_TRUE(parse_sampler_letters(std::string(64, 'k')).ok());
}

TEST(SamplerOptions, LogitBiases) {
  const auto bias = [](const char* text) { return parse_logit_bias(text); };
  EXPECT_EQ(bias("15043+1")->id, 15043);
  EXPECT_EQ(bias("15043+1")->bias, 1);
  EXPECT_EQ(bias("0-2.5")->bias, -2.5F);
  EXPECT_EQ(bias("2-inf")->bias, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(bias("2+1e300")->bias, std::numeric_limits<float>::max());
  for (const char* bad :
       {"", "5", "5+", "+1", "-5+1", "5+nan", "5+1x", "5 +1", "5+-1", "5--1", "5=1", "9999999999+1", "x+1"}) {
    EXPECT_EQ(bias(bad).status().code(), ErrorCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace tessera

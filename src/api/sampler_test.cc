#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>
#include <regex>
#include <set>
#include <string>

#include "api/sampler_fields.h"
#include "runtime/sampler_options.h"

namespace tessera::api {
namespace {

TEST(SamplerFields, EverySettingHasOneWithTheEnginesDefault) {
  tsr_sampler_options options;
  ASSERT_EQ(tsr_sampler_options_init(&options, sizeof options), TSR_OK);
  std::set<std::string_view> names;
  for (const SamplerField& field : sampler_fields()) {
    const SamplerSetting* setting = find_sampler_setting(field.name);
    ASSERT_NE(setting, nullptr) << field.name;
    EXPECT_EQ(setting->member.index(), field.member.index()) << field.name;
    names.insert(field.name);
    const double value = std::visit([&](auto member) { return static_cast<double>(options.*member); }, field.member);
    EXPECT_EQ(value, get_sampler_option(SamplerOptions(), *setting)) << field.name;
  }
  for (const SamplerSetting& setting : sampler_settings()) {
    EXPECT_TRUE(names.contains(setting.name)) << setting.name;
  }
  EXPECT_EQ(names.size(), sampler_settings().size());
}

// "0 to 1" and the like, as a comment of the public header has it.
std::string range_text(const SamplerSetting& setting) {
  constexpr double kUnlimited = std::numeric_limits<int32_t>::max();
  if (setting.max < kUnlimited) {
    return fmt::format("{} to {};", setting.min, setting.max);
  }
  return setting.min > -kUnlimited ? fmt::format("{} or more;", setting.min) : "any number;";
}

TEST(SamplerFields, TheHeaderSaysEveryRange) {
  std::ifstream header(TESSERA_TEST_DATA "/../../include/tessera/tessera.h");
  const std::string text(std::istreambuf_iterator<char>(header), {});
  for (const SamplerField& field : sampler_fields()) {
    const std::regex line(fmt::format("\n  (float|int32_t) {}; +/\\* ([^;]*;)", field.name));
    std::smatch found;
    ASSERT_TRUE(std::regex_search(text, found, line)) << field.name;
    EXPECT_EQ(found[2], range_text(*find_sampler_setting(field.name))) << field.name;
  }
}

TEST(SamplerFields, EachValueOutOfRangeIsRefusedByName) {
  for (const SamplerField& field : sampler_fields()) {
    tsr_sampler_options options;
    ASSERT_EQ(tsr_sampler_options_init(&options, sizeof options), TSR_OK);
    const SamplerSetting& setting = *find_sampler_setting(field.name);
    if (const auto* member = std::get_if<float tsr_sampler_options::*>(&field.member)) {
      options.** member = std::nanf("");
    } else if (setting.min > INT32_MIN) {
      options.*std::get<int32_t tsr_sampler_options::*>(field.member) = static_cast<int32_t>(setting.min - 1);
    } else {
      continue;  // every number is in range
    }
    tsr_sampler* sampler = nullptr;
    EXPECT_EQ(tsr_sampler_create(nullptr, &options, &sampler), TSR_INVALID_ARGUMENT) << field.name;
    EXPECT_NE(std::string_view(tsr_last_error()).find(field.name), std::string_view::npos) << tsr_last_error();
  }
}

}  // namespace
}  // namespace tessera::api

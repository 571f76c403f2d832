#include "common.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "generation.h"
#include "report.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(Quote, EscapesWhatTerminalsWouldObey) {
  EXPECT_EQ(quote("it's \\ \n\t\x1b[0m \xc3\xbc"), "'it\\'s \\\\ \\n\\t\\x1b[0m \xc3\xbc'");
}

TEST(Hex, ThereAndBack) {
  const std::string bytes("\x00\x7f\xff a", 5);
  EXPECT_EQ(hex_bytes(bytes), "007fff2061");
  const auto back = bytes_of_hex("007FfF2061");
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, bytes);
  EXPECT_EQ(*bytes_of_hex(""), "");
}

TEST(Hex, RefusesWhatIsNone) {
  EXPECT_THAT(bytes_of_hex("abc").status().message(), HasSubstr("3 hexadecimal digits"));
  EXPECT_THAT(bytes_of_hex("0g").status().message(), HasSubstr("'0g'"));
  EXPECT_FALSE(bytes_of_hex("-1").ok());
}

TEST(ReadInput, NamesAMissingFile) {
  EXPECT_THAT(read_input("no/such/file").status().message(), HasSubstr("no/such/file"));
}

TEST(FormatTable, AlignsColumns) {
  const std::vector<std::vector<std::string>> rows = {{"name", "n"}, {"a", "100"}};
  EXPECT_EQ(format_table(rows), "name    n\na     100\n");
}

TEST(Timings, RatesFollowFromCounts) {
  const auto json = nlohmann::json::parse(
      timings_json({.cache_n = 3, .prompt_n = 10, .prompt_ms = 500, .predicted_n = 4, .predicted_ms = 2000}));
  EXPECT_EQ(json["cache_n"], 3);
  EXPECT_EQ(json["prompt_per_token_ms"], 50.0);
  EXPECT_EQ(json["prompt_per_second"], 20.0);
  EXPECT_EQ(json["predicted_per_token_ms"], 500.0);
  EXPECT_EQ(json["predicted_per_second"], 2.0);
}

TEST(Timings, NothingGeneratedIsNoDivisionByZero) {
  const auto json = nlohmann::json::parse(timings_json({}));
  EXPECT_EQ(json["predicted_per_second"], 0.0);
  EXPECT_EQ(json["predicted_per_token_ms"], 0.0);
}

}  // namespace
}  // namespace tessera

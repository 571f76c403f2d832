#include "server/request_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const Result<Json>& result) {
  return result.ok() ? "" : result.status().message();
}

TEST(RequestFields, ParseSaysWhatIsWrong) {
  EXPECT_TRUE(parse_json_object(R"({"a": [1, {"b": "},{["}]})").ok());
  EXPECT_THAT(error_of(parse_json_object("")), HasSubstr("no valid JSON"));
  EXPECT_THAT(error_of(parse_json_object("{\"a\": \xff}")), HasSubstr("no valid JSON"));
  EXPECT_THAT(error_of(parse_json_object("[1]")), HasSubstr("an array; it must be a JSON object"));
}

TEST(RequestFields, LimitsOfNestingAndMembers) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_TRUE(parse_json(nested(kJsonDepthMax)).ok());
  EXPECT_THAT(error_of(parse_json(nested(kJsonDepthMax + 1))), HasSubstr("nested more than"));
  EXPECT_THAT(error_of(parse_json(std::string(10'000'000, '['))), HasSubstr("nested more than"));
  std::string many = "{";
  for (size_t i = 0; i <= kJsonMembersMax; ++i) {
    many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
  }
  EXPECT_THAT(error_of(parse_json(many + "}")), HasSubstr("members"));
}

TEST(RequestFields, WrongTypesNameTheField) {
  const Json object = {{"b", 1}, {"s", false}, {"n", "5"}, {"list", {1, "x"}}, {"nothing", nullptr}, {"big", 1e300}};
  const Fields fields(object, "outer");
  bool flag = true;
  std::string text = "as it was";
  int64_t number = 7;
  std::vector<std::string> list;
  EXPECT_EQ(fields.read("b", flag).message(), "field \"outer.b\" is 1; it must be true or false");
  EXPECT_EQ(fields.read("s", text).message(), "field \"outer.s\" is a boolean; it must be a string");
  EXPECT_THAT(fields.read("n", number, 0, 9).message(), HasSubstr("a whole number from 0 to 9"));
  EXPECT_THAT(fields.read("big", number, 0, 9).message(), HasSubstr("1e+300"));
  EXPECT_THAT(fields.read("list", list).message(), HasSubstr("strings alone"));
  EXPECT_TRUE(fields.read("nothing", number, 0, 9).ok());
  EXPECT_TRUE(fields.read("missing", text).ok());
  EXPECT_EQ(number, 7);
  EXPECT_EQ(text, "as it was");
}

TEST(RequestFields, WholeNumbers) {
  const Json object = {{"float", 5.0}, {"half", 5.5}, {"huge", 18446744073709551615ULL}, {"low", -3}};
  const Fields fields(object);
  int64_t n = 0;
  EXPECT_TRUE(fields.read("float", n, 0, 9).ok());
  EXPECT_EQ(n, 5);
  EXPECT_FALSE(fields.read("half", n, 0, 9).ok());
  EXPECT_FALSE(fields.read("huge", n, 0, INT64_MAX).ok());
  EXPECT_FALSE(fields.read("low", n, 0, 9).ok());
  EXPECT_TRUE(fields.read("low", n, -3, 9).ok());
  EXPECT_EQ(fields.read("low", n, 0, INT32_MAX).message(),
            "field \"low\" is -3; it must be a whole number of at least 0");
  EXPECT_EQ(fields.read("half", n, INT64_MIN, INT64_MAX).message(), "field \"half\" is 5.5; it must be a whole number");
  EXPECT_THAT(fields.read("huge", n, 0, INT64_MAX).message(), HasSubstr("from 0 to 9223372036854775807"));
  std::vector<std::string> words;
  const Json one = {{"stop", "x"}};
  EXPECT_TRUE(Fields(one).read("stop", words).ok());
  EXPECT_THAT(words, ElementsAre("x"));
}

}  // namespace
}  // namespace tessera

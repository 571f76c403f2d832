#include "metadata_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flag_table.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ParsedFlags parse(std::vector<const char*> args) {
  args.insert(args.begin(), {"run", "-m", "a.gguf"});
  Result<ParsedFlags> flags = parse_flags(tessera_flags(), args);
  EXPECT_TRUE(flags.ok()) << flags.status().message();
  return std::move(flags).value();
}

TEST(MetadataFlags, AreOverridesInTheirOrder) {
  EXPECT_THAT(metadata_overrides(parse({})), IsEmpty());
  EXPECT_THAT(
      metadata_overrides(parse({"--override-kv", "a=int:1,b=str:x", "--rope-scale", "4", "--rope-scaling", "yarn",
                                "--yarn-orig-ctx", "32768", "--rope-freq-base", "1e6", "--yarn-attn-factor", "1.5",
                                "--override-kv", "a=int:2", "--rope-freq-scale", "0.25"})),
      ElementsAre("a=int:1", "b=str:x", ".rope.scaling.factor=float:4", ".rope.scaling.type=str:yarn",
                  ".rope.scaling.original_context_length=int:32768", ".rope.freq_base=float:1e6",
                  ".rope.scaling.attn_factor=float:1.5", "a=int:2", ".rope.scaling.factor=float:4"));
}

TEST(MetadataFlags, ACommaMayBePartOfAValue) {
  EXPECT_THAT(metadata_overrides(parse({"--override-kv", "a=str:{{ x\\, y }},b=int:1"})),
              ElementsAre("a=str:{{ x, y }}", "b=int:1"));
}

TEST(MetadataFlags, SomeValuesStandForTheFiles) {
  EXPECT_THAT(metadata_overrides(parse({"--rope-scale", "0", "--rope-freq-scale", "0", "--rope-freq-base", "0.0",
                                        "--yarn-orig-ctx", "0", "--yarn-attn-factor", "-1.0"})),
              IsEmpty());
}

TEST(MetadataFlags, EveryOverrideOfThemIsOne) {
  EXPECT_TRUE(check_metadata_flags(parse({"--rope-scaling", "none", "--rope-freq-scale", "0.3", "--rope-freq-base",
                                          "1e30", "--yarn-attn-factor", "1e-300", "--rope-scale", "1e6"}))
                  .ok());
}

TEST(MetadataFlags, MistakesNameTheFlag) {
  const auto error = [](const char* text) {
    const Status status = check_metadata_flags(parse({"--override-kv", text}));
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(error("a=int:1,b"), HasSubstr("--override-kv b: wanted KEY=TYPE:VALUE"));
  EXPECT_THAT(error("a=i32:1"), AllOf(HasSubstr("--override-kv a=i32:1: "), HasSubstr("none of the types")));
  EXPECT_THAT(error("a=bool:yes"), HasSubstr("write true or false"));
}

}  // namespace
}  // namespace tessera

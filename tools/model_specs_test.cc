#include "model_specs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flag_table.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

Result<std::vector<ModelSpec>> specs_of(std::vector<const char*> args) {
  args.insert(args.begin(), "serve");
  ASSIGN_OR_RETURN(const ParsedFlags flags, parse_flags(tessera_flags(), args));
  return model_specs(flags);
}

std::string error_of(std::vector<const char*> args) {
  const auto specs = specs_of(std::move(args));
  return specs.ok() ? "" : specs.status().message();
}

TEST(ModelSpecs, OneFileIsAsItWas) {
  const auto plain = specs_of({"-m", "dir/a,b.gguf", "-c", "64"});
  ASSERT_TRUE(plain.ok());
  ASSERT_EQ(plain->size(), 1U);
  EXPECT_EQ(plain->front().name, "a,b.gguf");
  EXPECT_EQ(plain->front().flags.get_string("model"), "dir/a,b.gguf");
  EXPECT_EQ(specs_of({"-m", "dir/a.gguf", "-a", "mine"})->front().name, "mine");
  EXPECT_EQ(specs_of({"-m", "./a=b.gguf"})->front().name, "a=b.gguf");
}

TEST(ModelSpecs, OwnFlagsComeOverThoseOfTheCommandLine) {
  const auto specs = specs_of({"-m", "small=a.gguf,c=64,np=2,no-batch-invariant,device=cpu:0\\,cpu:1", "-c", "128",
                               "--model=large=d\\,e=f.gguf", "--batch-invariant"});
  ASSERT_TRUE(specs.ok()) << specs.status().message();
  ASSERT_EQ(specs->size(), 2U);
  const ParsedFlags& small = specs->at(0).flags;
  EXPECT_EQ(specs->at(0).name, "small");
  EXPECT_EQ(small.get_string("model"), "a.gguf");
  EXPECT_EQ(small.get_uint("ctx-size"), 64U);
  EXPECT_EQ(small.get_uint("parallel"), 2U);
  EXPECT_FALSE(small.get_bool("batch-invariant"));
  EXPECT_EQ(small.get_string_list("device"), (std::vector<std::string>{"cpu:0", "cpu:1"}));
  const ParsedFlags& large = specs->at(1).flags;
  EXPECT_EQ(large.get_string("model"), "d,e=f.gguf");
  EXPECT_EQ(large.get_uint("ctx-size"), 128U);
  EXPECT_EQ(large.get_uint("parallel"), 4U);
  EXPECT_TRUE(large.get_bool("batch-invariant"));
}

TEST(ModelSpecs, ErrorsCiteTheModelAndSayWhatIsRight) {
  EXPECT_THAT(error_of({"-m", "s=a.gguf,ctx-sise=64"}), HasSubstr("--model s=a.gguf,ctx-sise=64: unknown flag"));
  EXPECT_THAT(error_of({"-m", "s=a.gguf,ctx-sise=64"}), HasSubstr("did you mean --ctx-size?"));
  EXPECT_THAT(error_of({"-m", "s=a.gguf,parallel=0"}), HasSubstr("--parallel: 0 is out of range"));
  EXPECT_THAT(error_of({"-m", "s=a.gguf,parallel"}), HasSubstr("--parallel needs a value"));
  EXPECT_THAT(error_of({"-m", "s=a.gguf,help"}), HasSubstr("unknown flag"));
  EXPECT_THAT(error_of({"-m", "s=a.gguf,"}), HasSubstr("unknown flag"));
  EXPECT_THAT(error_of({"-m", "a.gguf,ctx-size=64"}), HasSubstr("write --model NAME=a.gguf,ctx-size=64"));
  EXPECT_THAT(error_of({"-m", "dir/a.gguf,np=2"}), HasSubstr("flags behind a file need a name"));
  EXPECT_THAT(error_of({"-m", "s="}), HasSubstr("the file is missing"));
  EXPECT_THAT(error_of({"-m", "=a.gguf", "-m", "t=b.gguf"}), HasSubstr("needs a name"));
  EXPECT_THAT(error_of({"-m", "a.gguf", "-m", "t=b.gguf"}), HasSubstr("--model a.gguf: of several models each needs"));
  EXPECT_THAT(error_of({"-m", "t=a.gguf", "-m", "t=b.gguf"}), HasSubstr("there twice"));
  EXPECT_THAT(error_of({"-m", "t=a.gguf", "-a", "x"}), HasSubstr("--alias"));
  for (const char* setting : {"port=80", "model=b.gguf", "device-memory=1G", "metrics", "verbose"}) {
    EXPECT_THAT(error_of({"-m", ("s=a.gguf," + std::string(setting)).c_str()}), HasSubstr("holds for the whole server"))
        << setting;
  }
}

}  // namespace
}  // namespace tessera

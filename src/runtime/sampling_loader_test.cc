#include "runtime/sampling_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf/gguf.h"
#include "gguf/writer.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Loaded {
  SamplerOptions options;
  std::vector<std::string> warnings;
};

Loaded load(const GgufWriter& writer) {
  const std::vector<std::byte> bytes = writer.to_bytes();
  const auto file = GgufFile::open_memory(bytes);
  EXPECT_TRUE(file.ok());
  Loaded loaded;
  loaded.options =
      recommended_sampling(file->metadata(), [&](std::string_view warning) { loaded.warnings.emplace_back(warning); });
  return loaded;
}

TEST(SamplingLoader, AFileThatSaysNothingLeavesTheDefaults) {
  const Loaded l = load(GgufWriter());
  for (const SamplerSetting& s : sampler_settings()) {
    EXPECT_EQ(get_sampler_option(l.options, s), get_sampler_option(SamplerOptions(), s)) << s.name;
  }
  EXPECT_EQ(l.options.samplers, SamplerOptions::default_chain());
  EXPECT_THAT(l.warnings, IsEmpty());
}

TEST(SamplingLoader, ReadsEveryKeyOfTheReference) {
  GgufWriter writer;
  writer.set_f32("general.sampling.temp", 0.5F);
  writer.set_i32("general.sampling.top_k", 64);
  writer.set_f32("general.sampling.top_p", 0.75F);
  writer.set_f32("general.sampling.min_p", 0.25F);
  writer.set_f32("general.sampling.xtc_probability", 0.125F);
  writer.set_f32("general.sampling.xtc_threshold", 0.375F);
  writer.set_i32("general.sampling.penalty_last_n", 128);
  writer.set_f32("general.sampling.penalty_repeat", 1.25F);
  writer.set_i32("general.sampling.mirostat", 2);
  writer.set_f32("general.sampling.mirostat_tau", 4);
  writer.set_f32("general.sampling.mirostat_eta", 0.5F);
  writer.set_string("general.sampling.sequence", "top_k;temperature");
  const Loaded l = load(writer);
  EXPECT_THAT(l.warnings, IsEmpty());
  const SamplerOptions& o = l.options;
  EXPECT_EQ(o.temperature, 0.5F);
  EXPECT_EQ(o.top_k, 64);
  EXPECT_EQ(o.top_p, 0.75F);
  EXPECT_EQ(o.min_p, 0.25F);
  EXPECT_EQ(o.xtc_probability, 0.125F);
  EXPECT_EQ(o.xtc_threshold, 0.375F);
  EXPECT_EQ(o.repeat_last_n, 128);
  EXPECT_EQ(o.repeat_penalty, 1.25F);
  EXPECT_EQ(o.mirostat, 2);
  EXPECT_EQ(o.mirostat_tau, 4);
  EXPECT_EQ(o.mirostat_eta, 0.5F);
  EXPECT_THAT(o.samplers, ElementsAre(SamplerStep::kTopK, SamplerStep::kTemperature));
}

TEST(SamplingLoader, LeavesOutWhatIsWrongAndSaysSo) {
  GgufWriter writer;
  writer.set_string("general.sampling.temp", "hot");
  writer.set_f32("general.sampling.top_p", 1.5F);
  writer.set_f32("general.sampling.top_k", 3.5F);
  writer.set_string("general.sampling.sequence", "top_k;cool");
  writer.set_f32("general.sampling.min_p", 0.25F);
  const Loaded l = load(writer);
  EXPECT_EQ(l.options.temperature, SamplerOptions().temperature);
  EXPECT_EQ(l.options.top_p, SamplerOptions().top_p);
  EXPECT_EQ(l.options.top_k, SamplerOptions().top_k);
  EXPECT_EQ(l.options.min_p, 0.25F);
  EXPECT_EQ(l.options.samplers, SamplerOptions::default_chain());
  EXPECT_THAT(l.warnings, ElementsAre(HasSubstr("general.sampling.temp"), HasSubstr("general.sampling.top_k"),
                                      HasSubstr("general.sampling.top_p is left out: top_p is 1.5"),
                                      HasSubstr("'cool' is no sampling step")));
}

}  // namespace
}  // namespace tessera

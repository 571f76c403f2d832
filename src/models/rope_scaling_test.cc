#include "models/rope_scaling.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

namespace tessera {
namespace {

using ::testing::FloatEq;
using ::testing::IsEmpty;
using ::testing::Pointwise;

// Expected numbers: the float64 computation whose logits were compared with the reference engine's.

RopeParams tiny_yarn() {
  RopeParams p;
  p.n_rot = 16;
  p.scaling = RopeScaling::kYarn;
  p.factor = 4;
  p.original_context = 128;
  return p;
}

TEST(RopeScaling, PlainFrequenciesFallGeometrically) {
  RopeParams p;
  p.n_rot = 8;
  const RopeSetting s = make_rope(p);
  EXPECT_THAT(s.inv_freq, Pointwise(FloatEq(), {1.0F, 0.1F, 0.01F, 0.001F}));
  EXPECT_EQ(s.magnitude, 1);
}

TEST(RopeScaling, LinearDividesEveryFrequency) {
  RopeParams p;
  p.n_rot = 16;
  p.scaling = RopeScaling::kLinear;
  p.factor = 2;
  const RopeSetting s = make_rope(p);
  EXPECT_THAT(s.inv_freq, Pointwise(FloatEq(), {0.5F, 0.158113883F, 0.05F, 0.0158113883F, 0.005F, 0.00158113883F,
                                                0.0005F, 0.000158113883F}));
  EXPECT_EQ(s.magnitude, 1);
  p.attn_factor = 1.5;
  EXPECT_EQ(make_rope(p).magnitude, 1.5F);
  p.factor = 0;  // some files say 0 and mean none
  EXPECT_EQ(make_rope(p).inv_freq[0], 1);
  p.factor = 2;
  p.scaling = RopeScaling::kNone;
  EXPECT_EQ(make_rope(p).inv_freq[0], 1);
}

TEST(RopeScaling, LlamaFactorsDivideEachPair) {
  RopeParams p;
  p.n_rot = 8;
  p.freq_factors = {1, 1.25, 2, 1e30F};
  EXPECT_TRUE(check_rope(p).ok());
  EXPECT_THAT(make_rope(p).inv_freq, Pointwise(FloatEq(), {1.0F, 0.08F, 0.005F, 1e-33F}));
}

TEST(RopeScaling, YarnKeepsFastPairsAndInterpolatesSlowOnes) {
  const RopeSetting s = make_rope(tiny_yarn());
  EXPECT_THAT(s.inv_freq, Pointwise(FloatEq(), {1.0F, 0.237170825F, 0.05F, 0.00790569415F, 0.0025F, 0.000790569415F,
                                                0.00025F, 7.90569415e-05F}));
  EXPECT_FLOAT_EQ(s.magnitude, 1.13862944F);
}

TEST(RopeScaling, YarnOfALargeModel) {
  RopeParams p = tiny_yarn();
  p.n_rot = 128;
  p.freq_base = 1e6;
  p.factor = 32;
  p.original_context = 4096;
  const RopeSetting s = make_rope(p);
  ASSERT_EQ(s.inv_freq.size(), 64U);
  std::vector<float> every_eighth;
  for (size_t i = 0; i < s.inv_freq.size(); i += 8) {
    every_eighth.push_back(s.inv_freq[i]);
  }
  EXPECT_THAT(every_eighth, Pointwise(FloatEq(), {1.0F, 0.177827941F, 0.0265170158F, 0.0022942745F, 3.125e-05F,
                                                  5.55712316e-06F, 9.88211769e-07F, 1.75731664e-07F}));
  EXPECT_FLOAT_EQ(s.magnitude, 1.34657359F);
}

TEST(RopeScaling, YarnBetasMoveTheRamp) {
  RopeParams p = tiny_yarn();
  p.beta_fast = 2;
  p.beta_slow = 0.1F;
  EXPECT_THAT(make_rope(p).inv_freq, Pointwise(FloatEq(), {1.0F, 0.316227766F, 0.1F, 0.0237170825F, 0.005F,
                                                           0.000790569415F, 0.00025F, 7.90569415e-05F}));
}

TEST(RopeScaling, YarnMagnitudeFollowsItsFactors) {
  RopeParams p = tiny_yarn();
  p.yarn_log_multiplier = 0.5;
  EXPECT_FLOAT_EQ(make_rope(p).magnitude, 1.06482163F);
  p = tiny_yarn();
  p.attn_factor = 1.5;
  EXPECT_FLOAT_EQ(make_rope(p).magnitude, 1.5F * 1.13862944F);
  p = tiny_yarn();
  p.factor = 0.5;  // no stretching: no temperature
  EXPECT_EQ(make_rope(p).magnitude, 1);
  p = tiny_yarn();
  p.ext_factor = 0.5;  // half of the blend
  EXPECT_FLOAT_EQ(make_rope(p).inv_freq[0], 0.625F);
  p.ext_factor = 0;  // leaves plain interpolation
  EXPECT_EQ(make_rope(p).magnitude, 1);
  EXPECT_FLOAT_EQ(make_rope(p).inv_freq[0], 0.25F);
}

TEST(RopeScaling, YarnDividesByLlamaFactorsToo) {
  RopeParams p = tiny_yarn();
  p.freq_factors = {1, 1, 1, 1.25, 2, 4, 8, 8};
  const RopeSetting s = make_rope(p);
  EXPECT_FLOAT_EQ(s.inv_freq[1], 0.237170825F);
  EXPECT_FLOAT_EQ(s.inv_freq[4], 0.00125F);
}

TEST(RopeScaling, RefusesWhatNoFrequencyCanBeMadeOf) {
  EXPECT_TRUE(check_rope(tiny_yarn()).ok());
  EXPECT_TRUE(check_rope({}).ok());
  EXPECT_THAT(make_rope({}).inv_freq, IsEmpty());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<RopeParams> wrong;
  const auto with = [&](auto change) {
    RopeParams p = tiny_yarn();
    change(p);
    wrong.push_back(p);
  };
  for (const int64_t n : {int64_t{-2}, int64_t{15}, int64_t{65538}, std::numeric_limits<int64_t>::min()}) {
    with([&](RopeParams& p) { p.n_rot = n; });
  }
  for (const float x : {nan, inf, 0.0F, -1.0F}) {
    with([&](RopeParams& p) { p.freq_base = x; });
    with([&](RopeParams& p) { p.beta_fast = x; });
    with([&](RopeParams& p) { p.beta_slow = x; });
  }
  for (const float x : {nan, inf, -inf, 0.0F}) {  // negative divisors turn the other way, and files with them exist
    with([&](RopeParams& p) { p.freq_factors = {1, 1, 1, 1, x, 1, 1, 1}; });
  }
  for (const float x : {nan, inf, -inf}) {
    with([&](RopeParams& p) { p.factor = x; });
    with([&](RopeParams& p) { p.attn_factor = x; });
    with([&](RopeParams& p) { p.ext_factor = x; });
    with([&](RopeParams& p) { p.yarn_log_multiplier = x; });
  }
  with([](RopeParams& p) { p.freq_base = 1; });
  with([](RopeParams& p) { p.factor = -4; });
  with([](RopeParams& p) { p.original_context = 0; });
  with([](RopeParams& p) { p.freq_factors = {1, 1}; });
  with([](RopeParams& p) { p.freq_factors = std::vector<float>(8, 1e-45F); });  // the frequency overflows
  with([](RopeParams& p) { p.attn_factor = 3.4e38F; });
  for (size_t i = 0; i < wrong.size(); ++i) {
    EXPECT_EQ(check_rope(wrong[i]).code(), ErrorCode::kInvalidData) << i;
    make_rope(wrong[i]);  // must not break
  }
  RopeParams p = tiny_yarn();
  p.factor = -4;
  EXPECT_EQ(check_rope(p).message(), "rope: scaling.factor is -4, but must be above 0");
}

}  // namespace
}  // namespace tessera

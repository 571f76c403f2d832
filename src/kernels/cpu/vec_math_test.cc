#include "kernels/cpu/vec_math.h"

#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <random>

// Accuracy of the portable twin; that the others give equal bits is what the tests of glu, scale and attention show.

namespace tessera {
namespace {

using portable::F32x16;

/// Distance of `value` from `exact` in units of the last place of float32 at `exact`.
double ulps(float value, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::fabs(value - exact) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

/// Largest error over a fine grid and random floats of [low, high].
double worst_ulps(F32x16 (*function)(F32x16), const std::function<double(double)>& exact, float low, float high) {
  std::mt19937 engine(7);
  std::uniform_real_distribution<float> linear(low, high);
  std::uniform_real_distribution<float> exponent(-100, std::log2(std::max(1.0F, high)));
  double worst = 0;
  for (int i = 0; i < 40000; ++i) {
    F32x16 x;
    for (float& lane : x.v) {
      lane = linear(engine);
      if (i % 2 == 1) {  // small ones too
        const float magnitude = std::exp2(exponent(engine));
        lane = std::clamp(i % 4 == 1 ? -magnitude : magnitude, low, high);
      }
    }
    const F32x16 y = function(x);
    for (int lane = 0; lane < 16; ++lane) {
      worst = std::max(worst, ulps(y.v[lane], exact(x.v[lane])));
    }
  }
  return worst;
}

TEST(VecMath, ErrorsStayWithinWhatTheHeaderStates) {
  const auto gelu = [](double x) { return x / (1 + std::exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x))); };
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  EXPECT_LT(worst_ulps(portable::exp, [](double x) { return std::exp(x); }, -87, 88), 1.2);
  EXPECT_LT(worst_ulps(portable::exp, [](double x) { return std::exp(x); }, -104, -87), 1.2);  // in units of 2^-149
  EXPECT_LT(worst_ulps(portable::tanh, [](double x) { return std::tanh(x); }, -12, 12), 4);
  EXPECT_LT(worst_ulps(portable::silu, silu, -80, 80), 4);
  EXPECT_LT(worst_ulps(portable::gelu_tanh, gelu, -1, 80), 6);
}

TEST(VecMath, Limits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto first = [](F32x16 v) { return v.v[0]; };
  EXPECT_EQ(first(portable::exp(portable::splat(0))), 1);
  EXPECT_EQ(first(portable::exp_down(portable::splat(0))), 1);
  EXPECT_EQ(first(portable::exp(portable::splat(-kInfinity))), 0);
  EXPECT_EQ(first(portable::exp_down(portable::splat(-kInfinity))), 0);
  EXPECT_EQ(first(portable::exp(portable::splat(-104))), 0);
  EXPECT_GT(first(portable::exp(portable::splat(-103))), 0);
  EXPECT_EQ(first(portable::exp(portable::splat(88.8F))), kInfinity);
  EXPECT_EQ(first(portable::exp(portable::splat(kInfinity))), kInfinity);
  EXPECT_EQ(first(portable::tanh(portable::splat(kInfinity))), 1);
  EXPECT_EQ(first(portable::tanh(portable::splat(-50))), -1);
  EXPECT_EQ(first(portable::silu(portable::splat(-1000))), 0);
  EXPECT_EQ(first(portable::silu(portable::splat(1000))), 1000);
  for (const auto function : {portable::exp, portable::exp_down, portable::tanh, portable::silu, portable::gelu_tanh}) {
    EXPECT_TRUE(std::isnan(first(function(portable::splat(std::numeric_limits<float>::quiet_NaN())))));
  }
}

}  // namespace
}  // namespace tessera

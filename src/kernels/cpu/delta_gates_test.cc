#include "kernels/ops/delta_gates.h"

#include <cmath>

#include "kernels/cpu/rec_test_util.h"

namespace tessera {
namespace {

class DeltaGatesTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(DeltaGatesTest);

TEST_P(DeltaGatesTest, AreThoseOfTheLayersHeadsInEveryCut) {
  TestRandom random(1);
  for (const RecFormat& format : rec_formats()) {
    for (const std::vector<int64_t>& bounds : rec_cuts(format.n_key_heads)) {
      RecLayer layer(format, bounds, 1);
      const int64_t n_heads = layer.value_heads();
      const std::vector<float> dt_bias = random.normals(n_heads);
      const std::vector<float> a = random.normals(n_heads);
      const int n_tokens = 5;
      GuardedRows alpha(random, n_tokens, n_heads, n_heads + 2);
      GuardedRows beta(random, n_tokens, n_heads, n_heads + 2);
      alpha.at(0, 0) = 90;
      alpha.at(1, 0) = -120;
      beta.at(2, 0) = -120;
      for (const int n_threads : {1, 3}) {
        GuardedRows decay(n_tokens, n_heads, n_heads + 2);
        GuardedRows strength(n_tokens, n_heads, n_heads + 2);
        const DeltaGatesArgs args{alpha.data(),   beta.data(), decay.data(), strength.data(), decay.stride(),
                                  dt_bias.data(), a.data(),    format,       layer.panels()};
        run_kernel(kernel(Op::kDeltaGates), args, {n_tokens, 0, 1}, n_threads);
        ASSERT_TRUE(decay.gaps_intact() && strength.gaps_intact());
        for (int64_t t = 0; t < n_tokens; ++t) {
          for (int64_t h = 0; h < n_heads; ++h) {
            const int64_t at = layer.place_of(h);
            const auto i = static_cast<size_t>(h);
            const double x = alpha.at(t, at) + dt_bias[i];
            const double softplus = x > 40 ? x : std::log(1 + std::exp(x));
            ASSERT_TRUE(within(decay.at(t, at), a[i] * softplus, 4 * kF32Epsilon * std::fabs(a[i] * softplus) + 1e-15));
            const double sigmoid = 1 / (1 + std::exp(-static_cast<double>(beta.at(t, at))));
            ASSERT_TRUE(within(strength.at(t, at), sigmoid, kF32Epsilon * sigmoid + 1e-40));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera

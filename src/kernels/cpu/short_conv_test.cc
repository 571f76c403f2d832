#include "kernels/ops/short_conv.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/rec_test_util.h"

namespace tessera {
namespace {

class ShortConvTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(ShortConvTest);

// Inputs of a sequence by position, [channels of the layer].
using History = std::vector<std::vector<float>>;

double exact(const RecFormat& f, const std::vector<float>& weight, const History& x, int64_t position,
             int64_t channel) {
  double sum = 0;
  const auto n_channels = static_cast<int64_t>(x[0].size());
  for (int64_t j = 0; j < f.n_taps; ++j) {
    const int64_t from = position - (f.n_taps - 1) + j;
    if (from >= 0) {
      sum += static_cast<double>(weight[static_cast<size_t>(j * n_channels + channel)]) *
             x[static_cast<size_t>(from)][static_cast<size_t>(channel)];
    }
  }
  return sum / (1 + std::exp(-sum));
}

// Three sequences go through batches of odd sizes; every output against the definition, every table, cut and number of
// threads against the portable twin on one cut.
TEST_P(ShortConvTest, GoesOnWhereTheLastBatchEnded) {
  for (const RecFormat& format : rec_formats()) {
    for (const std::vector<int64_t>& bounds : rec_cuts(format.n_key_heads)) {
      for (const int n_threads : {1, 2, 7}) {
        SCOPED_TRACE(testing::Message() << format.k_dim << "/" << format.v_dim << " cuts " << bounds.size() - 1 << " "
                                        << n_threads << " threads");
        TestRandom random(1);
        RecLayer whole(format, {0, format.n_key_heads}, 3);
        RecLayer layer(format, bounds, 3);
        const int64_t width = layer.channels();
        const std::vector<float> weight = random.normals(format.n_taps * width);
        std::vector<History> history(3);
        for (const std::vector<int32_t>& counts :
             {std::vector<int32_t>{1, 0, 5}, {1, 3, 0}, {2, 1, 1}, {0, 9, 1}, {1, 1, 1}}) {
          std::vector<int32_t> positions;
          for (const History& h : history) {
            positions.push_back(static_cast<int32_t>(h.size()));
          }
          const RecBatch batch(random, counts, positions);
          const auto n = static_cast<int64_t>(batch.tokens.size());
          GuardedRows x(n, width, width + 3);
          GuardedRows whole_x(n, width, width + 3);
          for (int64_t t = 0; t < n; ++t) {
            std::vector<float> values = random.normals(width);
            for (int64_t c = 0; c < width; ++c) {
              x.at(t, layer.column_of(c)) = values[static_cast<size_t>(c)];
              whole_x.at(t, whole.column_of(c)) = values[static_cast<size_t>(c)];
            }
            const auto [run, position] = batch.tokens[static_cast<size_t>(t)];
            history[static_cast<size_t>(batch.runs[static_cast<size_t>(run)].slot)].push_back(std::move(values));
          }
          GuardedRows y(n, width, width + 1);
          GuardedRows whole_y(n, width, width + 1);
          ShortConvArgs args{x.data(),      x.stride(), y.data(),       y.stride(),
                             weight.data(), format,     layer.panels(), {batch.rows.data(), batch.runs.data()}};
          run_kernel(kernel(Op::kShortConv), args, batch.sizes(), n_threads);
          args.x = whole_x.data();
          args.y = whole_y.data();
          args.panels = whole.panels();
          run_kernel(definition(Op::kShortConv), args, batch.sizes());
          ASSERT_TRUE(y.gaps_intact() && x.gaps_intact() && layer.guards_intact());
          for (int64_t t = 0; t < n; ++t) {
            const auto [run, position] = batch.tokens[static_cast<size_t>(t)];
            const History& h = history[static_cast<size_t>(batch.runs[static_cast<size_t>(run)].slot)];
            for (int64_t c = 0; c < width; ++c) {
              const float got = y.at(t, layer.column_of(c));
              ASSERT_EQ(got, whole_y.at(t, whole.column_of(c))) << "token " << t << " channel " << c;
              const double want = exact(format, weight, h, position, c);
              // Products of normal numbers, a few roundings each; silu's slope is below 1.1.
              ASSERT_TRUE(within(got, want, 1.1 * static_cast<double>(format.n_taps + 6) * 16 * kF32Epsilon));
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera

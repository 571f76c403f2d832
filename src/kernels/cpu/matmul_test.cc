// Products: every dtype, instruction set, odd shape, panel list and team size. Portable defines the bits of the fast
// set; the scalar set, which sums in double, says how far portable may be off.

#include "kernels/ops/matmul.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>

#include "kernels/cpu/matmul_formats.h"
#include "kernels/kernel_test_util.h"
#include "kernels/ops/quantize.h"
#include "kernels/ops/summation.h"
#include "tensor/quants.h"

namespace tessera {
namespace {

constexpr CpuTable kScalarTable = {CpuKernelSet::kScalar, CpuIsa::kPortable};
constexpr CpuTable kPortableTable = {CpuKernelSet::kFast, CpuIsa::kPortable};

/// A weight as a file holds it, and decoded.
struct Weight {
  DType dtype;
  int64_t rows, columns;
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [rows, columns]

  Weight(TestRandom& random, DType type, int64_t n_rows, int64_t n_columns)
      : dtype(type),
        rows(n_rows),
        columns(n_columns),
        bytes(static_cast<size_t>(n_rows) * row_bytes(type, n_columns)),
        values(static_cast<size_t>(n_rows * n_columns)) {
    const DTypeInfo& info = dtype_info(dtype);
    for (size_t block = 0; block < bytes.size() / info.block_bytes; ++block) {
      fill_block(random, bytes.data() + block * info.block_bytes, values.data() + block * info.block_elems, info);
    }
  }

  [[nodiscard]] const std::byte* row(int64_t r) const { return bytes.data() + r * row_bytes(dtype, columns); }

 private:
  /// A block of random values, or, where nothing writes the type, of random bytes that mean finite values.
  static void fill_block(TestRandom& random, std::byte* block, float* decoded, const DTypeInfo& info) {
    const auto n = static_cast<int64_t>(info.block_elems);
    for (bool good = false; !good;) {
      if (can_quantize(info.dtype)) {
        quantize_row(info.dtype, random.normals(n).data(), block, n);
      } else {
        std::generate_n(block, info.block_bytes, [&] { return static_cast<std::byte>(random.below(256)); });
      }
      dequantize_row(info.dtype, block, decoded, n);
      good = std::all_of(decoded, decoded + n, [](float x) { return std::fabs(x) < 1e20F; });
    }
  }
};

const WeightLayout& layout_of(const CpuTable& table, DType dtype) {
  return *cpu_kernel_table(table.set, table.isa).value()->layout(dtype);
}

/// Columns [begin, end) of a weight, packed as a table wants them.
struct PackedPanel {
  int64_t column_begin, columns;
  const Weight& weight;
  std::unique_ptr<GuardedBytes> bytes;

  PackedPanel(const CpuTable& table, const Weight& from, int64_t begin, int64_t end)
      : column_begin(begin), columns(end - begin), weight(from) {
    const WeightLayout& layout = layout_of(table, from.dtype);
    bytes = std::make_unique<GuardedBytes>(static_cast<int64_t>(layout.packed_bytes(from.dtype, from.rows, columns)));
    std::vector<const std::byte*> rows;
    for (int64_t r = 0; r < from.rows; ++r) {
      rows.push_back(from.row(r) + row_bytes(from.dtype, begin));
    }
    layout.pack(from.dtype, columns, rows, bytes->data());
    EXPECT_TRUE(bytes->guards_intact());
  }

  [[nodiscard]] MatmulPanel panel(GuardedRows& y) const {
    return {weight.dtype, bytes->data(), weight.rows, columns, column_begin, y.data(), y.stride()};
  }
};

/// Activations, and the same quantised by a table's kernel.
struct Input {
  int64_t n_tokens, columns;
  GuardedRows x;
  std::unique_ptr<GuardedBytes> q8;

  Input(TestRandom& random, int64_t tokens, int64_t n_columns)
      : n_tokens(tokens), columns(n_columns), x(random, tokens, n_columns, n_columns + 5) {
    quantize();
  }
  /// Integers up to `most` in magnitude, reached in each block.
  Input(TestRandom& random, int64_t tokens, int64_t n_columns, int64_t most)
      : n_tokens(tokens), columns(n_columns), x(random, tokens, n_columns, n_columns + 5) {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t k = 0; k < columns; ++k) {
        x.row(t)[k] = static_cast<float>(k % kQ8Block == 0 ? most : random.below(2 * most + 1) - most);
      }
    }
    quantize();
  }
  /// A copy of columns [begin, end).
  Input(Input& from, int64_t begin, int64_t end)
      : n_tokens(from.n_tokens), columns(end - begin), x(n_tokens, columns, columns + 1) {
    for (int64_t t = 0; t < n_tokens; ++t) {
      std::copy(from.x.row(t) + begin, from.x.row(t) + end, x.row(t));
    }
    quantize();
  }

  [[nodiscard]] MatmulArgs args() {
    return {x.data(), x.stride(), q8 ? q8->data() : nullptr, q8 ? columns : 0, {}, false};
  }
  [[nodiscard]] Q8Scale scale(int64_t t, int64_t b) const {
    return q8_scales(q8->data() + t * q8_row_bytes(columns), columns)[b];
  }

 private:
  void quantize() {
    if (columns % kQ8Block == 0) {
      q8 = std::make_unique<GuardedBytes>(n_tokens * q8_row_bytes(columns));
      const QuantizeArgs args = {x.data(), x.stride(), columns, q8->data(), false};
      run_kernel(find_kernel(kPortableTable, Op::kQuantize), args, {static_cast<int32_t>(n_tokens), 0, 0});
    }
  }
};

GuardedRows product(const CpuTable& table, const Weight& weight, Input& input, int n_threads = 1) {
  const PackedPanel packed(table, weight, 0, weight.columns);
  GuardedRows y(input.n_tokens, weight.rows, weight.rows + 3);
  MatmulArgs args = input.args();
  args.panels = {packed.panel(y)};
  run_kernel(find_kernel(table, Op::kMatmul), args, {static_cast<int32_t>(input.n_tokens), 0, 0}, n_threads);
  EXPECT_TRUE(y.gaps_intact());
  return y;
}

std::vector<int64_t> column_counts(DType dtype) {
  const int64_t block = dtype_info(dtype).block_elems;
  if (block == 1) {
    return {1, 15, 33, 100, 1057};
  }
  return {block, 2 * block, 3 * block, std::max<int64_t>(block, 2048 / block * block)};
}

/// How far the fast product of row r and token t may be from the exact one.
double error_bound(const Weight& w, Input& input, bool quantized, int64_t t, int64_t r) {
  double magnitude = 0;
  double rounding = 0;  // each activation is off by at most half its block's scale
  for (int64_t k = 0; k < w.columns; ++k) {
    const double value = std::fabs(w.values[static_cast<size_t>(r * w.columns + k)]);
    magnitude += value * std::fabs(input.x.at(t, k));
    if (quantized) {
      const double half_step = 0.5001 * input.scale(t, k / kQ8Block).d;
      rounding += value * half_step;
      // A minimum and its scale part have opposite signs: their sums are as large as the block's largest values.
      magnitude += 32 * value * half_step;
    }
  }
  const double roundings = static_cast<double>(w.columns) / 16 * 2 + 8;
  return rounding + roundings * kF32Epsilon * (quantized ? 32 : 1) * magnitude + 1e-30;
}

class MatmulTest : public CpuTableTest {};

void check_case(const CpuTable& table, uint32_t seed, DType dtype, int64_t rows, int64_t columns, int64_t n_tokens) {
  SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " rows " << rows << " columns " << columns << " tokens "
                                  << n_tokens << " seed " << seed);
  TestRandom random(seed);
  const Weight weight(random, dtype, rows, columns);
  Input input(random, n_tokens, columns);
  GuardedRows y = product(table, weight, input);
  if (table.set == CpuKernelSet::kFast && table.isa != CpuIsa::kPortable) {
    EXPECT_TRUE(y == product(kPortableTable, weight, input)) << "bits differ from portable";
    return;
  }
  const bool quantized = layout_of(table, dtype).quantized_input;
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (int64_t r = 0; r < rows; ++r) {
      double exact = 0;
      for (int64_t k = 0; k < columns; ++k) {
        exact += static_cast<double>(weight.values[static_cast<size_t>(r * columns + k)]) * input.x.at(t, k);
      }
      const double bound = table.set == CpuKernelSet::kScalar ? 2 * kF32Epsilon * std::fabs(exact) + 1e-9
                                                              : error_bound(weight, input, quantized, t, r);
      ASSERT_TRUE(within(y.at(t, r), exact, bound)) << "token " << t << " row " << r;
    }
  }
}

TEST_P(MatmulTest, EveryDtypeAndShape) {
  uint32_t seed = 1;
  for (const DTypeInfo& info : dtype_table()) {
    for (const int64_t columns : column_counts(info.dtype)) {
      for (const int64_t rows : {1, 7, 16, 33}) {
        for (const int64_t n_tokens : {1, 2, 3, 8, 17}) {
          if (columns <= 768 || rows == 33) {
            check_case(GetParam(), seed++, info.dtype, rows, columns, n_tokens);
          }
        }
      }
    }
    if (HasFailure()) {
      return;
    }
  }
}

/// Activations that quantise without error: what is left is the rounding of floats, so that a format whose integers or
/// scales were only nearly right would show.
TEST_P(MatmulTest, ExactActivationsGiveExactProducts) {
  uint32_t seed = 700;
  for (const DTypeInfo& info : dtype_table()) {
    TestRandom random(++seed);
    const int64_t columns = std::max<int64_t>(512, info.block_elems);
    const Weight weight(random, info.dtype, 33, columns);
    Input input(random, 7, columns, 127);
    GuardedRows y = product(GetParam(), weight, input);
    for (int64_t t = 0; t < 7; ++t) {
      for (int64_t r = 0; r < 33; ++r) {
        double exact = 0;
        double magnitude = 0;
        for (int64_t k = 0; k < columns; ++k) {
          const double product =
              static_cast<double>(weight.values[static_cast<size_t>(r * columns + k)]) * input.x.at(t, k);
          exact += product;
          magnitude += std::fabs(product);
        }
        // One rounding for each half block's sum, scale and minimum; a minimum may be as large as all of a block.
        const double bound = 64 * kF32Epsilon * magnitude * static_cast<double>(columns) / 512 + 1e-30;
        ASSERT_TRUE(within(y.at(t, r), exact, bound))
            << info.name << " token " << t << " row " << r << " seed " << seed;
      }
    }
  }
}

/// Enough rows for every way of handing out groups.
TEST_P(MatmulTest, ManyRows) {
  for (const DType dtype : {DType::kQ4_1, DType::kQ5_0, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K, DType::kF16}) {
    for (const int64_t n_tokens : {1, 9}) {
      check_case(GetParam(), 50, dtype, 576, 256, n_tokens);
    }
  }
}

TEST_P(MatmulTest, NoTokensWriteNothing) {
  TestRandom random(7);
  const Weight weight(random, DType::kQ4_1, 33, 64);
  Input input(random, 1, 64);
  const PackedPanel packed(GetParam(), weight, 0, 64);
  GuardedRows y(1, 33, 40);
  const GuardedRows before = y;
  MatmulArgs args = input.args();
  args.panels = {packed.panel(y)};
  for (const int n_threads : {1, 3}) {
    run_kernel(kernel(Op::kMatmul), args, {0, 0, 0}, n_threads);
    EXPECT_TRUE(y == before);
  }
}

TEST_P(MatmulTest, PerOutputCountsOutputs) {
  TestRandom random(8);
  const Weight weight(random, DType::kQ8_0, 16, 64);
  Input input(random, 3, 64);
  const GuardedRows all = product(GetParam(), weight, input);
  const PackedPanel packed(GetParam(), weight, 0, 64);
  GuardedRows y(3, 16, 19);
  MatmulArgs args = input.args();
  args.per_output = true;
  args.panels = {packed.panel(y)};
  run_kernel(kernel(Op::kMatmul), args, {7, 3, 1});
  EXPECT_TRUE(y == all);
}

/// A row's result does not depend on how many other tokens are in the batch: decode and prefill give equal bits.
TEST_P(MatmulTest, TokensAreIndependent) {
  uint32_t seed = 100;
  for (const DTypeInfo& info : dtype_table()) {
    const int64_t columns = info.block_elems == 1 ? 1057 : 1024;
    TestRandom random(++seed);
    const Weight weight(random, info.dtype, 33, columns);
    const int64_t most = GetParam().isa == CpuIsa::kPortable ? 17 : 64;
    Input input(random, most, columns);
    GuardedRows all = product(GetParam(), weight, input);
    for (const int64_t n_tokens : {1, 2, 3, 4, 5, 8, 9, 13}) {
      const PackedPanel packed(GetParam(), weight, 0, columns);
      GuardedRows y(n_tokens, 33, 36);
      MatmulArgs args = input.args();
      args.panels = {packed.panel(y)};
      run_kernel(kernel(Op::kMatmul), args, {static_cast<int32_t>(n_tokens), 0, 0});
      for (int64_t t = 0; t < n_tokens; ++t) {
        EXPECT_EQ(std::memcmp(y.row(t), all.row(t), 33 * sizeof(float)), 0)
            << info.name << " token " << t << " of " << n_tokens << " seed " << seed;
      }
    }
  }
}

/// Runs panels as one launch, and each alone on a copy of its columns; checks equal bits.
void check_panels(const CpuTable& table, const std::vector<PackedPanel>& panels, Input& input, int n_threads) {
  std::vector<GuardedRows> together;
  for (const PackedPanel& panel : panels) {
    together.emplace_back(input.n_tokens, panel.weight.rows, panel.weight.rows + 1);
  }
  const LaunchSizes sizes = {static_cast<int32_t>(input.n_tokens), 0, 0};
  MatmulArgs args = input.args();
  for (size_t i = 0; i < panels.size(); ++i) {
    args.panels.push_back(panels[i].panel(together[i]));
  }
  run_kernel(find_kernel(table, Op::kMatmul), args, sizes, n_threads);
  for (size_t i = 0; i < panels.size(); ++i) {
    const PackedPanel& panel = panels[i];
    GuardedRows alone(input.n_tokens, panel.weight.rows, panel.weight.rows + 1);
    Input part(input, panel.column_begin, panel.column_begin + panel.columns);
    args = part.args();
    args.panels = {panel.panel(alone)};
    args.panels[0].column_begin = 0;
    run_kernel(find_kernel(table, Op::kMatmul), args, sizes, 1);
    EXPECT_TRUE(together[i] == alone) << dtype_name(panels[i].weight.dtype) << " panel " << i << " of " << panels.size()
                                      << ", tokens " << input.n_tokens << ", threads " << n_threads;
  }
}

TEST_P(MatmulTest, ColumnPanelsEqualEachAlone) {
  uint32_t seed = 200;
  for (const DType dtype :
       {DType::kQ4_1,    DType::kQ5_0,   DType::kQ8_0,   DType::kQ6_K,    DType::kQ4_K,  DType::kF16,
        DType::kQ2_K,    DType::kQ3_K,   DType::kIQ4_NL, DType::kIQ4_XS,  DType::kMXFP4, DType::kNVFP4,
        DType::kQ1_0,    DType::kQ2_0,   DType::kTQ1_0,  DType::kTQ2_0,   DType::kIQ1_S, DType::kIQ1_M,
        DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S,  DType::kIQ3_XXS, DType::kIQ3_S}) {
    const int64_t block = std::max<int64_t>(32, dtype_info(dtype).block_elems);
    for (const int64_t n_panels : {1, 2, 4}) {
      for (const int64_t n_tokens : {1, 3, 17}) {
        TestRandom random(++seed);
        const Weight weight(random, dtype, 33, 4 * block);
        Input input(random, n_tokens, 4 * block);
        std::vector<PackedPanel> panels;
        for (int64_t i = 0; i < n_panels; ++i) {
          panels.emplace_back(GetParam(), weight, i * 4 * block / n_panels, (i + 1) * 4 * block / n_panels);
        }
        check_panels(GetParam(), panels, input, 2);
      }
    }
  }
}

TEST_P(MatmulTest, WeightsOfSeveralDtypesShareALaunch) {
  for (const int n_threads : {1, 2, 3, 7}) {
    for (const int64_t n_tokens : {1, 9, 64}) {
      TestRandom random(300);
      const Weight q(random, DType::kQ5_0, 50, 256);
      const Weight k(random, DType::kQ4_K, 1, 256);
      const Weight v(random, DType::kF32, 23, 256);
      const Weight o(random, DType::kIQ3_S, 16, 256);
      Input input(random, n_tokens, 256);
      std::vector<PackedPanel> panels;
      for (const Weight* weight : {&q, &k, &v, &o}) {
        panels.emplace_back(GetParam(), *weight, 0, 256);
      }
      check_panels(GetParam(), panels, input, n_threads);
    }
  }
}

TEST_P(MatmulTest, PackedRowsOfAPrefixAreAPrefix) {
  TestRandom random(400);
  for (const DTypeInfo& info : dtype_table()) {
    const int64_t columns = 3 * info.block_elems;
    const Weight weight(random, info.dtype, 40, columns);
    const WeightLayout& layout = layout_of(GetParam(), info.dtype);
    const PackedPanel all(GetParam(), weight, 0, columns);
    std::vector<const std::byte*> rows;
    for (int64_t r = 0; r < 2 * layout.row_group; ++r) {
      rows.push_back(weight.row(r));
    }
    const auto size = static_cast<int64_t>(layout.packed_bytes(info.dtype, 2 * layout.row_group, columns));
    GuardedBytes prefix(size);
    layout.pack(info.dtype, columns, rows, prefix.data());
    EXPECT_EQ(std::memcmp(prefix.data(), all.bytes->data(), static_cast<size_t>(size)), 0) << info.name;
    EXPECT_TRUE(size % 64 == 0 || layout.row_group == 1) << info.name;
  }
}

TEST_P(MatmulTest, FloatSumsFollowTheCanonicalOrder) {
  if (is_scalar()) {
    GTEST_SKIP() << "the scalar set sums in double";
  }
  TestRandom random(500);
  const Weight weight(random, DType::kF32, 5, 99);
  Input input(random, 6, 99);
  GuardedRows y = product(GetParam(), weight, input);
  for (int64_t t = 0; t < 6; ++t) {
    for (int64_t r = 0; r < 5; ++r) {
      EXPECT_EQ(y.at(t, r), dot_canonical(weight.values.data() + r * 99, input.x.row(t), 99));
    }
  }
}

bool equal_over_team_sizes(KernelFn kernel, MatmulArgs args, const PackedPanel& packed, int64_t n_tokens) {
  const auto run = [&](int n_threads) {
    GuardedRows y(n_tokens, packed.weight.rows, packed.weight.rows);
    args.panels = {packed.panel(y)};
    run_kernel(kernel, args, {static_cast<int32_t>(n_tokens), 0, 0}, n_threads);
    return y;
  };
  const GuardedRows one = run(1);
  return run(2) == one && run(3) == one && run(7) == one;
}

TEST_P(MatmulTest, TeamSizeChangesNoBit) {
  for (const DType dtype :
       {DType::kQ4_1, DType::kQ6_K, DType::kQ8_0, DType::kF32, DType::kQ2_K, DType::kIQ3_S, DType::kF64}) {
    for (const int64_t n_tokens : {1, 4, 64, 150}) {
      if (GetParam().isa == CpuIsa::kPortable && n_tokens > 64) {
        continue;
      }
      TestRandom random(600);
      const Weight weight(random, dtype, 57, 512);
      Input input(random, n_tokens, 512);
      const PackedPanel packed(GetParam(), weight, 0, 512);
      EXPECT_TRUE(equal_over_team_sizes(kernel(Op::kMatmul), input.args(), packed, n_tokens)) << dtype_name(dtype);
    }
  }
}

/// Weights enough that the ends of the threads' shares go out in pieces, to whom is chance.
TEST_P(MatmulTest, PiecesOfACommonRestChangeNoBit) {
  if (is_scalar()) {
    GTEST_SKIP() << "the scalar set shares evenly";
  }
  for (const DType dtype : {DType::kQ8_0, DType::kF16}) {
    TestRandom random(650);
    const Weight weight(random, dtype, 6000, 256);
    Input input(random, 2, 256);
    const PackedPanel packed(GetParam(), weight, 0, 256);
    const auto run = [&](GuardedRows& y, int n_threads) {
      MatmulArgs args = input.args();
      args.panels = {packed.panel(y)};
      return run_kernel(kernel(Op::kMatmul), args, {2, 0, 0}, n_threads);
    };
    GuardedRows alone(2, weight.rows, weight.rows + 1);
    EXPECT_EQ(run(alone, 1), 0);
    for (const int n_threads : {2, 3, 5}) {
      GuardedRows y(2, weight.rows, weight.rows + 1);
      EXPECT_GT(run(y, n_threads), n_threads) << "no pieces: each thread only heard that none is left";
      EXPECT_TRUE(y == alone) << dtype_name(dtype) << ", threads " << n_threads;
    }
  }
}

/// The fault that placement invariance forbids: each thread sums its part of the columns, and the parts are added.
void product_split_by_columns(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& cpu = *static_cast<const CpuLaunch*>(launch);
  const auto& args = *static_cast<const MatmulArgs*>(raw_args);
  const MatmulPanel& panel = args.panels[0];
  const auto* w = static_cast<const float*>(panel.weights);
  const CpuShare share = cpu_share(cpu, panel.columns);
  for (int64_t t = 0; t < sizes.n_tokens; ++t) {
    for (int64_t r = 0; r < panel.rows; ++r) {
      const float part = dot_canonical(w + r * panel.columns + share.begin, args.x + t * args.x_stride + share.begin,
                                       share.end - share.begin);
      float& y = panel.y[t * panel.y_stride + r];
      y = cpu.thread == cpu.n_threads - 1 ? part : y + part;  // run_kernel calls the last thread first
    }
  }
}

TEST(MatmulFault, SplittingColumnsOverThreadsIsCaught) {
  TestRandom random(700);
  const Weight weight(random, DType::kF32, 57, 512);
  Input input(random, 4, 512);
  const PackedPanel packed(kPortableTable, weight, 0, 512);
  EXPECT_FALSE(equal_over_team_sizes(product_split_by_columns, input.args(), packed, 4));
}

TESSERA_FOR_ALL_CPU_TABLES(MatmulTest);

}  // namespace
}  // namespace tessera

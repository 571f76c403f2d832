#include "kernels/ops/rms_norm.h"

#include "kernels/kernel_test_util.h"
#include "kernels/ops/quantize.h"
#include "kernels/ops/summation.h"

namespace tessera {
namespace {

struct Shape {
  int64_t width;
  int64_t n_groups;
};

std::vector<Shape> shapes() {
  std::vector<Shape> list = {{64, 9}, {96, 2}, {256, 4}, {576, 1}, {640, 1}, {2048, 1}};
  for (int64_t width = 1; width <= 70; ++width) {
    list.push_back({width, 1 + width % 3});
  }
  return list;
}

class RmsNormTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(RmsNormTest);

RmsNormArgs make_args(GuardedRows& x, const std::vector<float>& weight, GuardedRows& y, const Shape& shape) {
  RmsNormArgs args;
  args.x = x.data();
  args.x_stride = x.stride();
  args.weight = weight.empty() ? nullptr : weight.data();
  args.y = y.data();
  args.y_stride = y.stride();
  args.n_groups = shape.n_groups;
  args.width = shape.width;
  args.eps = 1e-5F;
  return args;
}

TEST_P(RmsNormTest, MatchesDoubleAndDefinition) {
  TestRandom random(1);
  for (const Shape& shape : shapes()) {
    for (const int n_tokens : {0, 1, 2, 7}) {
      SCOPED_TRACE(testing::Message() << "width " << shape.width << " groups " << shape.n_groups << " tokens "
                                      << n_tokens);
      const int64_t columns = shape.width * shape.n_groups;
      GuardedRows x(random, n_tokens, columns, columns + 3);
      const std::vector<float> weight = shape.width % 2 == 0 ? random.normals(shape.width) : std::vector<float>();
      GuardedRows expected(n_tokens, columns, columns + 5);
      run_kernel(definition(Op::kRmsNorm), make_args(x, weight, expected, shape), {n_tokens, 0, 1});
      ASSERT_TRUE(expected.gaps_intact());
      for (int64_t t = 0; t < n_tokens; ++t) {
        for (int64_t g = 0; g < shape.n_groups; ++g) {
          const float* row = x.row(t) + g * shape.width;
          double squares = 0;
          for (int64_t i = 0; i < shape.width; ++i) {
            squares += static_cast<double>(row[i]) * row[i];
          }
          const double factor = 1 / std::sqrt(squares / static_cast<double>(shape.width) + 1e-5);
          for (int64_t i = 0; i < shape.width; ++i) {
            const double exact = row[i] * factor * (weight.empty() ? 1 : weight[static_cast<size_t>(i)]);
            // A lane adds width / 16 + 4 times; each rounding is half of that in the root; six more steps follow.
            const double bound = std::fabs(exact) * kF32Epsilon * (static_cast<double>(shape.width) / 32 + 10);
            ASSERT_TRUE(within(expected.at(t, g * shape.width + i), exact, bound));
          }
        }
      }
      for (const int n_threads : {1, 2, 3, 7}) {
        GuardedRows y(n_tokens, columns, columns + 5);
        run_kernel(kernel(Op::kRmsNorm), make_args(x, weight, y, shape), {n_tokens, 0, 1}, n_threads);
        ASSERT_EQ(y, expected) << n_threads << " threads";
      }
    }
  }
}

TEST_P(RmsNormTest, InPlaceOverOutputsQuantisesAsQuantizeWould) {
  TestRandom random(2);
  for (const Shape& shape : {Shape{32, 1}, {576, 1}, {640, 1}, {16, 6}, {80, 4}}) {
    const int64_t columns = shape.width * shape.n_groups;
    const int n_rows = 3;
    GuardedRows x(random, n_rows, columns, columns + 1);
    const std::vector<float> weight = random.normals(shape.width);
    GuardedRows plain(n_rows, columns, columns);
    RmsNormArgs args = make_args(x, weight, plain, shape);
    args.per_output = true;
    run_kernel(kernel(Op::kRmsNorm), args, {1, n_rows, 1});

    for (const int n_threads : {1, 2, 7}) {
      GuardedRows y = x;
      GuardedBytes q8(n_rows * q8_row_bytes(columns));
      args = make_args(y, weight, y, shape);
      args.per_output = true;
      args.q8 = q8.data();
      run_kernel(kernel(Op::kRmsNorm), args, {1, n_rows, 1}, n_threads);
      for (int64_t row = 0; row < n_rows; ++row) {
        ASSERT_EQ(0, std::memcmp(y.row(row), plain.row(row), static_cast<size_t>(columns) * 4));
      }
      ASSERT_TRUE(y.gaps_intact());

      GuardedBytes expected(q8.size());
      QuantizeArgs quantize;
      quantize.x = y.data();
      quantize.x_stride = y.stride();
      quantize.columns = columns;
      quantize.q8 = expected.data();
      quantize.per_output = true;
      run_kernel(find_kernel({CpuKernelSet::kFast, GetParam().isa}, Op::kQuantize), quantize, {1, n_rows, 1});
      ASSERT_EQ(q8, expected) << columns << " columns, " << n_threads << " threads";
    }
  }
}

TEST(RmsNorm, SumsInCanonicalOrder) {
  TestRandom random(3);
  const int n_rows = 64;  // a wrong order often rounds to the same root
  for (const int64_t width : {577, 40}) {
    GuardedRows x(random, n_rows, width, width);
    GuardedRows y(n_rows, width, width);
    run_kernel(find_kernel({CpuKernelSet::kFast, CpuIsa::kPortable}, Op::kRmsNorm), make_args(x, {}, y, {width, 1}),
               {n_rows, 0, 1});
    for (int64_t row = 0; row < n_rows; ++row) {
      const float mean = dot_canonical(x.row(row), x.row(row), width) / static_cast<float>(width);
      const float factor = 1.0F / std::sqrt(mean + 1e-5F);
      for (int64_t i = 0; i < width; ++i) {
        ASSERT_EQ(y.at(row, i), x.at(row, i) * factor);
      }
    }
  }
}

}  // namespace
}  // namespace tessera

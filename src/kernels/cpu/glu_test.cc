#include "kernels/ops/glu.h"

#include "kernels/kernel_test_util.h"
#include "kernels/ops/quantize.h"

namespace tessera {
namespace {

double exact_glu(Activation activation, double gate, double up) {
  const double u = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate);
  const double sigmoid = 1 / (1 + std::exp(-gate));
  switch (activation) {
    case Activation::kSilu: return gate * sigmoid * up;
    case Activation::kSigmoid: return sigmoid * up;
    case Activation::kGeluTanh: return 0.5 * gate * (1 + std::tanh(u)) * up;
    case Activation::kSiluClamped: break;  // not gate alone decides: ClampsAndCountsItsOwnRows
  }
  return 0;
}

GluArgs make_args(GuardedRows& gate, GuardedRows& up, GuardedRows& y, Activation activation) {
  GluArgs args;
  args.gate = gate.data();
  args.gate_stride = gate.stride();
  args.up = up.data();
  args.up_stride = up.stride();
  args.y = y.data();
  args.y_stride = y.stride();
  args.width = y.width();
  args.activation = activation;
  return args;
}

class GluTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(GluTest);

TEST_P(GluTest, MatchesDoubleAndDefinition) {
  TestRandom random(1);
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kSigmoid}) {
    for (const int64_t width : test_widths()) {
      const int n_tokens = static_cast<int>(width % 4);
      SCOPED_TRACE(testing::Message() << "width " << width << " tokens " << n_tokens);
      GuardedRows gate(random, n_tokens, width, width + 2);
      GuardedRows up(random, n_tokens, width, width + 1);
      for (int64_t t = 0; t < n_tokens; ++t) {
        gate.at(t, width / 2) = random.uniform(-120, 120);
      }
      GuardedRows expected(n_tokens, width, width + 7);
      run_kernel(definition(Op::kGlu), make_args(gate, up, expected, activation), {n_tokens, 0, 1});
      ASSERT_TRUE(expected.gaps_intact());
      for (int64_t t = 0; t < n_tokens; ++t) {
        for (int64_t i = 0; i < width; ++i) {
          const double exact = exact_glu(activation, gate.at(t, i), up.at(t, i));
          // The exponent of gelu, up to 100, is rounded before e^x; below 2^-110 a few powers of two may vanish. The
          // scalar twin rounds argument and result of gelu to half precision.
          double bound = std::fabs(exact) * kF32Epsilon * (12 + 6 * std::fabs(gate.at(t, i))) + 1e-30;
          if (is_scalar() && activation == Activation::kGeluTanh) {
            bound += 0x1p-11 * (1.2 * std::fabs(gate.at(t, i) * up.at(t, i)) + std::fabs(exact)) + 0x1p-23;
          }
          ASSERT_TRUE(within(expected.at(t, i), exact, bound)) << "gate " << gate.at(t, i);
        }
      }
      for (const int n_threads : {1, 2, 3, 7}) {
        GuardedRows y(n_tokens, width, width + 7);
        run_kernel(kernel(Op::kGlu), make_args(gate, up, y, activation), {n_tokens, 0, 1}, n_threads);
        ASSERT_EQ(y, expected) << n_threads << " threads";
      }
      GuardedRows in_place = gate;
      run_kernel(kernel(Op::kGlu), make_args(in_place, up, in_place, activation), {n_tokens, 0, 1});
      for (int64_t t = 0; t < n_tokens; ++t) {
        ASSERT_EQ(0, std::memcmp(in_place.row(t), expected.row(t), static_cast<size_t>(width) * 4));
      }
    }
  }
}

TEST_P(GluTest, ClampsAndCountsItsOwnRows) {
  TestRandom random(3);
  for (const int64_t width : {1, 15, 16, 40, 257}) {
    const int32_t n_rows = 2;  // of three: the third belongs to nobody
    GuardedRows gate(random, 3, width, width + 2);
    GuardedRows up(random, 3, width, width + 1);
    for (int64_t i = 0; i < width; ++i) {
      gate.at(0, i) = random.uniform(-60, 20);
      up.at(0, i) = random.uniform(-20, 20);
    }
    GuardedRows expected(3, width, width + 7);
    GluArgs args = make_args(gate, up, expected, Activation::kSiluClamped);
    args.limit = 7;
    args.alpha = 1.702F;
    args.n_rows = &n_rows;
    run_kernel(definition(Op::kGlu), args, {9, 0, 1});
    for (int64_t t = 0; t < n_rows; ++t) {
      for (int64_t i = 0; i < width; ++i) {
        const double x = std::min(7.0, static_cast<double>(gate.at(t, i)));
        const double y = std::clamp(static_cast<double>(up.at(t, i)), -7.0, 7.0);
        const double exact = x / (1 + std::exp(-static_cast<double>(1.702F) * x)) * (y + 1);
        ASSERT_TRUE(
            within(expected.at(t, i), exact,
                   std::fabs(exact) * kF32Epsilon * (12 + 3 * std::fabs(x)) + 2 * kF32Epsilon * std::fabs(x) + 1e-30))
            << gate.at(t, i) << " and " << up.at(t, i);
      }
    }
    for (const int n_threads : {1, 2, 3, 7}) {
      GuardedRows y(3, width, width + 7);
      args.y = y.data();
      run_kernel(kernel(Op::kGlu), args, {9, 0, 1}, n_threads);
      ASSERT_EQ(y, expected) << n_threads << " threads";
    }
  }
}

TEST_P(GluTest, QuantisesAsQuantizeWould) {
  TestRandom random(2);
  for (const int64_t width : {32, 96, 256, 288, 576, 1536}) {
    const int n_tokens = 3;
    GuardedRows gate(random, n_tokens, width, width);
    GuardedRows up(random, n_tokens, width, width);
    GuardedRows y(n_tokens, width, width);
    GluArgs args = make_args(gate, up, y, Activation::kSilu);
    run_kernel(kernel(Op::kGlu), args, {n_tokens, 0, 1});
    GuardedBytes expected(n_tokens * q8_row_bytes(width));
    QuantizeArgs quantize;
    quantize.x = y.data();
    quantize.x_stride = y.stride();
    quantize.columns = width;
    quantize.q8 = expected.data();
    run_kernel(find_kernel({CpuKernelSet::kFast, GetParam().isa}, Op::kQuantize), quantize, {n_tokens, 0, 1});
    for (const int n_threads : {1, 2, 7}) {
      for (const bool only_q8 : {false, true}) {
        GuardedBytes q8(expected.size());
        args.q8 = q8.data();
        args.y = only_q8 ? nullptr : y.data();
        run_kernel(kernel(Op::kGlu), args, {n_tokens, 0, 1}, n_threads);
        ASSERT_EQ(q8, expected) << width << " columns, " << n_threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace tessera

#include "kernels/ops/glu.h"

#include <cmath>

#include "kernels/cpu/glu_body.h"
#include "kernels/cpu/rows.h"
#include "tensor/half.h"

namespace tessera {
namespace avx2 {
KernelBody glu;
}
namespace avx512 {
KernelBody glu;
}
namespace {

// Between -10 and 10 the reference engine looks GELU up in a table of half-precision values; this twin rounds the same
// way, since it is what whole models are compared with (without it tiny-gemma3 differs by 2e-3 instead of 5e-4).
double round_f16(double x) {
  return f16_to_f32(f32_to_f16(static_cast<float>(x)));
}

double activate_scalar(Activation activation, double x) {
  if (activation == Activation::kSilu) {
    return x / (1 + std::exp(-x));
  }
  if (activation == Activation::kSigmoid) {
    return 1 / (1 + std::exp(-x));
  }
  if (x <= -10 || x >= 10) {
    return x < 0 ? 0 : x;
  }
  const double sqrt_2_over_pi = 0.79788456080286535588;
  const double h = round_f16(x);
  return round_f16(0.5 * h * (1 + std::tanh(sqrt_2_over_pi * (h + 0.044715 * h * h * h))));
}

double glu_scalar_element(const GluArgs& args, double gate, float up) {
  if (args.activation == Activation::kSiluClamped) {
    const double x = std::min<double>(gate, args.limit);
    const double y = std::clamp<double>(up, -args.limit, args.limit);
    return x / (1 + std::exp(-args.alpha * x)) * (y + 1);
  }
  return static_cast<float>(activate_scalar(args.activation, gate)) * up;
}

/// The readable reference: activations in double.
void glu_scalar(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const GluArgs*>(raw_args);
  const int64_t n_rows = args.n_rows == nullptr ? sizes.n_tokens : *args.n_rows;
  for_each_span(launch, n_rows, args.width, [&](int64_t row, int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kQ8Block) {
      const int64_t n = std::min(kQ8Block, end - block);
      float values[kQ8Block];
      for (int64_t i = 0; i < n; ++i) {
        const double gate = args.gate[row * args.gate_stride + block + i];
        values[i] = static_cast<float>(glu_scalar_element(args, gate, args.up[row * args.up_stride + block + i]));
      }
      if (args.y != nullptr) {
        std::copy_n(values, n, args.y + row * args.y_stride + block);
      }
      if (args.q8 != nullptr) {
        portable::quantize_part(values, args.q8, row, args.width, block, n);
      }
    }
  });
}

}  // namespace

void append_glu_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows) {
  const KernelFn fast = pick_kernel(isa, portable::glu, avx2::glu, avx512::glu);
  rows.push_back({Op::kGlu, DType::kF32, DType::kF32, set == CpuKernelSet::kScalar ? glu_scalar : fast});
}

}  // namespace tessera

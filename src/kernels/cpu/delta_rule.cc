#include "kernels/ops/delta_rule.h"

#include <cmath>
#include <vector>

#include "kernels/cpu/delta_rule_body.h"
#include "kernels/cpu/rows.h"

namespace tessera {
namespace avx2 {
KernelBody delta_rule;
}
namespace avx512 {
KernelBody delta_rule;
}
namespace {

using portable::DeltaHead;
using portable::for_each_delta_head;

double length_of(const float* x, int64_t n) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) {
    squares += static_cast<double>(x[i]) * x[i];
  }
  return std::sqrt(squares);
}

/// One token of one column of S, [k_dim] rows v_dim apart. q, k: [k_dim], not yet normalised.
float step_scalar(float* s, int64_t k_dim, int64_t v_dim, const float* q, double q_scale, const float* k,
                  double k_scale, double decay, double strength, double v) {
  double seen = 0;
  for (int64_t i = 0; i < k_dim; ++i) {
    seen += decay * s[i * v_dim] * (k[i] * k_scale);
  }
  const double delta = (v - seen) * strength;
  double answer = 0;
  for (int64_t i = 0; i < k_dim; ++i) {
    const double updated = decay * s[i * v_dim] + k[i] * k_scale * delta;
    s[i * v_dim] = static_cast<float>(updated);
    answer += updated * (q[i] * q_scale);
  }
  return static_cast<float>(answer);
}

/// The readable reference: token by token, sums in double, the output from the updated state.
void delta_rule_scalar(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const DeltaRuleArgs*>(raw_args);
  const RecFormat& format = args.format;
  for_each_delta_head(launch, args, sizes, 1, [&](const RecRun& run, const DeltaHead& head, int64_t) {
    if (run.position == 0) {
      std::fill_n(head.state, format.k_dim * format.v_dim, 0.0F);
    }
    for (int64_t i = 0; i < run.n_rows; ++i) {
      const int64_t row = args.rows.rows[run.row_begin + i];
      const float* q = args.qkv + row * args.qkv_stride + head.q_column;
      const float* k = args.qkv + row * args.qkv_stride + head.k_column;
      const float* v = args.qkv + row * args.qkv_stride + head.v_column;
      const double eps = args.eps;
      const double q_scale =
          1 / std::max(length_of(q, format.k_dim), eps) / std::sqrt(static_cast<double>(format.k_dim));
      const double k_scale = 1 / std::max(length_of(k, format.k_dim), eps);
      const int64_t gate = row * args.gate_stride + head.out_head;
      const double decay = std::exp(static_cast<double>(args.log_decay[gate]));
      for (int64_t j = 0; j < format.v_dim; ++j) {
        args.out[row * args.out_stride + head.out_head * format.v_dim + j] = step_scalar(
            head.state + j, format.k_dim, format.v_dim, q, q_scale, k, k_scale, decay, args.strength[gate], v[j]);
      }
    }
  });
}

}  // namespace

void append_delta_rule_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows) {
  const KernelFn fast = pick_kernel(isa, portable::delta_rule, avx2::delta_rule, avx512::delta_rule);
  rows.push_back({Op::kDeltaRule, DType::kF32, DType::kF32, set == CpuKernelSet::kScalar ? delta_rule_scalar : fast});
}

}  // namespace tessera

#include "kernels/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "device/cpu/cpu_launch.h"
#include "kernels/cpu/attention_body.h"
#include "kernels/cpu/cache_types.h"
#include "kernels/cpu/rows.h"
#include "tensor/quants.h"

namespace tessera {
namespace avx2 {
KernelBody attention;
}
namespace avx512 {
KernelBody attention;
}
namespace {

/// The readable reference: one query head of one token at a time, in double, keys in ascending order.
void attend_scalar(const AttentionArgs& args, const KvPanel& panel, int64_t kv_head, int64_t rep, int64_t token) {
  const KvFormat& format = args.format;
  const auto k_row = static_cast<int64_t>(row_bytes(format.k_type, static_cast<uint64_t>(format.k_dim)));
  const auto v_row = static_cast<int64_t>(row_bytes(format.v_type, static_cast<uint64_t>(format.v_dim)));
  const int64_t head = (panel.kv_head_begin + kv_head) * args.n_rep + rep;
  const float* q = args.q + token * args.q_stride + head * format.k_dim;
  const int32_t* pages = args.page_table + args.seq_rows[token] * args.page_table_stride;
  const int64_t position = args.positions[token];
  const int64_t first = args.window > 0 ? std::max<int64_t>(0, position - args.window + 1) : 0;

  double max = args.sinks != nullptr ? args.sinks[head] : -std::numeric_limits<double>::infinity();
  double total = args.sinks != nullptr ? 1 : 0;
  double sums[kAttentionMaxDim] = {};
  for (int64_t j = first; j <= position; ++j) {
    const std::byte* k_base = panel.base + pages[j / kPageTokens] * kv_page_bytes(format, panel.n_kv_heads);
    const std::byte* v_base = k_base + kv_k_bytes(format, panel.n_kv_heads);
    const int64_t place = kv_head * kPageTokens + j % kPageTokens;
    float key[kAttentionMaxDim];
    float value[kAttentionMaxDim];
    dequantize_row(format.k_type, k_base + place * k_row, key, format.k_dim);
    dequantize_row(format.v_type, v_base + place * v_row, value, format.v_dim);
    double score = 0;
    for (int64_t i = 0; i < format.k_dim; ++i) {
      score += static_cast<double>(q[i]) * key[i];
    }
    score *= args.scale;
    if (args.softcap > 0) {
      score = args.softcap * std::tanh(score / args.softcap);
    }
    const double new_max = std::max(max, score);
    const double decay = std::exp(max - new_max);
    const double weight = std::exp(score - new_max);
    max = new_max;
    total = total * decay + weight;
    for (int64_t i = 0; i < format.v_dim; ++i) {
      sums[i] = sums[i] * decay + weight * value[i];
    }
  }
  float* out = args.out + token * args.out_stride + head * format.v_dim;
  for (int64_t i = 0; i < format.v_dim; ++i) {
    out[i] = static_cast<float>(sums[i] / total);
  }
}

void attention_scalar(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const AttentionArgs*>(raw_args);
  CHECK(args.format.k_dim <= kAttentionMaxDim && args.format.v_dim <= kAttentionMaxDim);
  for (const KvPanel& panel : args.panels) {
    const int64_t per_token = panel.n_kv_heads * args.n_rep;
    const CpuShare share = cpu_share(*static_cast<const CpuLaunch*>(launch), sizes.n_tokens * per_token);
    for (int64_t item = share.begin; item < share.end; ++item) {
      const int64_t head = item % per_token;
      attend_scalar(args, panel, head / args.n_rep, head % args.n_rep, item / per_token);
    }
  }
}

}  // namespace

void append_attention_rows(CpuKernelSet set, CpuIsa isa, std::vector<KernelRow>& rows) {
  const KernelFn fast = pick_kernel(isa, portable::attention, avx2::attention, avx512::attention);
  for (const DType k : kCacheTypes) {
    for (const DType v : kCacheTypes) {
      rows.push_back({Op::kAttention, k, v, set == CpuKernelSet::kScalar ? attention_scalar : fast});
    }
  }
}

}  // namespace tessera

#include "kernels/ops/route.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/cpu/cpu_launch.h"
#include "kernels/cpu/rows.h"
#include "tensor/tensor_table.h"

namespace tessera {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kLeastScore = std::numeric_limits<float>::lowest();  // of what is there; less: taken or dropped
constexpr float kLeastSum = 0x1p-14F;                                // docs/gguf-facts.md 2.5

/// p = e^(p - max) / sum.
void softmax(float* p, int64_t n) {
  const float most = *std::max_element(p, p + n);
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    p[i] = std::exp(p[i] - most);
    sum += p[i];
  }
  for (int64_t i = 0; i < n; ++i) {
    p[i] /= sum;
  }
}

/// Replaces logits by probabilities.
void gate(RouteGating gating, float* p, int64_t n) {
  switch (gating) {
    case RouteGating::kSoftmax: softmax(p, n); return;
    case RouteGating::kSigmoid: std::transform(p, p + n, p, [](float x) { return 1 / (1 + std::exp(-x)); }); return;
    case RouteGating::kSqrtSoftplus:
      std::transform(p, p + n, p, [](float x) { return std::sqrt(x > 20 ? x : std::log1p(std::exp(x))); });
      return;
    case RouteGating::kSoftmaxOfChosen: return;
  }
}

/// Takes the largest score out of the list: its index, the lowest of equal ones.
int64_t take_largest(float* scores, int64_t n) {
  const int64_t best = std::max_element(scores, scores + n) - scores;
  scores[best] = kMinusInfinity;
  return best;
}

/// Leaves scores only to the best groups.
void drop_groups(const RouteArgs& args, float* scores) {
  const int64_t size = args.n_experts / args.n_groups;
  float group_scores[kMaxExperts] = {};
  for (int64_t g = 0; g < args.n_groups; ++g) {
    float first = kMinusInfinity;
    float second = kMinusInfinity;
    for (int64_t i = 0; i < size; ++i) {
      const float s = scores[g * size + i];
      second = std::max(second, std::min(first, s));
      first = std::max(first, s);
    }
    group_scores[g] = size > 1 ? std::max(kLeastScore, first + second) : first;
  }
  bool kept[kMaxExperts] = {};
  for (int64_t i = 0; i < args.n_groups_used; ++i) {
    kept[take_largest(group_scores, args.n_groups)] = true;
  }
  for (int64_t g = 0; g < args.n_groups; ++g) {
    if (!kept[g]) {
      std::fill_n(scores + g * size, size, kMinusInfinity);
    }
  }
}

void route_token(const RouteArgs& args, const float* logits, int32_t* routing) {
  float p[kMaxExperts] = {};
  float scores[kMaxExperts] = {};
  for (int64_t e = 0; e < args.n_experts; ++e) {
    p[e] = args.bias == nullptr ? logits[e] : logits[e] + args.bias[e];
  }
  gate(args.gating, p, args.n_experts);
  for (int64_t e = 0; e < args.n_experts; ++e) {
    const float s = args.selection_bias == nullptr ? p[e] : p[e] + args.selection_bias[e];
    scores[e] = std::max(kLeastScore, s);  // NaN too
  }
  if (args.n_groups_used < args.n_groups) {
    drop_groups(args, scores);
  }
  for (int64_t i = 0; i < args.n_used; ++i) {
    routing[i] = static_cast<int32_t>(take_largest(scores, args.n_experts));
  }
  std::sort(routing, routing + args.n_used);
  float weights[kMaxExpertsUsed] = {};
  for (int64_t i = 0; i < args.n_used; ++i) {
    weights[i] = p[routing[i]];
  }
  if (args.gating == RouteGating::kSoftmaxOfChosen) {
    softmax(weights, args.n_used);
  }
  float sum = 0;
  for (int64_t i = 0; i < args.n_used; ++i) {
    sum += weights[i];
  }
  for (int64_t i = 0; i < args.n_used; ++i) {
    weights[i] = (args.normalize ? weights[i] / std::max(sum, kLeastSum) : weights[i]) * args.scale;
  }
  std::memcpy(routing + args.n_used, weights, static_cast<size_t>(args.n_used) * sizeof(float));
}

void route(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const RouteArgs*>(raw_args);
  const CpuShare tokens = cpu_share(*static_cast<const CpuLaunch*>(launch), sizes.n_tokens);
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    route_token(args, args.logits + t * args.n_experts, args.routing + t * 2 * args.n_used);
  }
}

}  // namespace

/// One kernel for every set: a few hundred numbers per token.
void append_route_rows(CpuKernelSet /*set*/, CpuIsa /*isa*/, std::vector<KernelRow>& rows) {
  rows.push_back({Op::kRoute, DType::kF32, DType::kF32, route});
}

}  // namespace tessera

#pragma once
// route: chooses experts for every token from its router logits, and weighs them.
//
// With l = logits + bias, probabilities p are, by gating: kSoftmax softmax(l); kSigmoid 1 / (1 + e^-l); kSqrtSoftplus
// sqrt(ln(1 + e^l)); kSoftmaxOfChosen l itself. Scores s = p + selection_bias. With groups, a group's score is the sum
// of its two largest s, and only experts of the n_groups_used best groups are candidates. The n_used candidates of the
// largest s are chosen, the lower expert (and group) where scores are equal; NaN counts as minus infinity. Weights are
// p of the chosen (kSoftmaxOfChosen: their softmax); normalize divides them by max(their sum, 2^-14); then times scale.
// Sums run in ascending order of experts. Bytes: n_tokens * (n_experts + 2 * n_used) * 4.

#include <cstdint>

namespace tessera {

enum class RouteGating : uint8_t { kSoftmax, kSigmoid, kSoftmaxOfChosen, kSqrtSoftplus };

struct RouteArgs {
  const float* logits = nullptr;          // [n_tokens, n_experts] f32
  const float* bias = nullptr;            // [n_experts] f32, or null
  const float* selection_bias = nullptr;  // [n_experts] f32, or null
  int64_t n_experts = 0;                  // at most kMaxExperts
  int64_t n_used = 0;                     // at most kMaxExpertsUsed and the number of candidates
  int64_t n_groups = 1;                   // divides n_experts
  int64_t n_groups_used = 1;
  RouteGating gating = RouteGating::kSoftmax;
  bool normalize = false;
  float scale = 1;
  int32_t* routing = nullptr;  // [n_tokens, 2 * n_used]: chosen experts, ascending (i32), then their weights (f32)
};

}  // namespace tessera

// Builder's operations of experts.

#include <cmath>
#include <fmt/format.h>

#include "program/build/builder.h"

namespace tessera {

Value Builder::route(const RouteNode& route, Value h) {
  if (bad(h)) {
    return {};
  }
  const ValueInfo in = info(h);
  const TensorSpec& router = table_.tensors[static_cast<size_t>(route.router)];
  const int64_t n_experts = table_.n_groups(CutAxis::kExpert, route.layer);
  const RouteRule& rule = route.rule;
  if (in.kind != ValueKind::kWhole || in.per_output || router.rows != n_experts || router.columns != in.width) {
    return fail(fmt::format("tensor {} is [{}, {}], wanted [{}, {}]", router.name, router.rows, router.columns,
                            n_experts, in.width));
  }
  for (const TensorIndex t : {route.bias, route.selection_bias}) {
    if (t != kNoTensor && table_.tensors[static_cast<size_t>(t)].columns != n_experts) {
      return fail(fmt::format("tensor {} has {} elements for {} experts", table_.tensors[static_cast<size_t>(t)].name,
                              table_.tensors[static_cast<size_t>(t)].columns, n_experts));
    }
  }
  const int64_t candidates = rule.n_groups < 1 ? 0 : n_experts / rule.n_groups * rule.n_groups_used;
  if (n_experts < 1 || n_experts > kMaxExperts || rule.n_groups < 1 || n_experts % rule.n_groups != 0 ||
      rule.n_groups_used < 1 || rule.n_groups_used > rule.n_groups || rule.n_used < 1 || rule.n_used > candidates ||
      rule.n_used > kMaxExpertsUsed || !std::isfinite(rule.scale)) {
    return fail(fmt::format("layer {}: {} of {} experts in the best {} of {} groups, scale {}: no routing is that",
                            route.layer, rule.n_used, n_experts, rule.n_groups_used, rule.n_groups, rule.scale));
  }
  return add_node(route, {h.id}, new_value(ValueKind::kWhole, CutAxis::kNone, -1, 2 * rule.n_used, false));
}

Value Builder::expert_linear(const Weight& w, Value x, Value routing) {
  if (bad(x) || bad(routing)) {
    return {};
  }
  const TensorSpec& spec = table_.tensors[static_cast<size_t>(w.weight)];
  const ValueInfo in = info(x);
  const bool rows = in.kind == ValueKind::kExpertRows && in.layer == spec.layer;
  if (spec.tile != TileKind::kExpert || (!rows && in.kind != ValueKind::kWhole) || in.per_output ||
      spec.columns != in.width) {
    return fail(fmt::format("tensor {} has {} columns for rows of {}", spec.name, spec.columns, in.width));
  }
  const int64_t n_experts = table_.n_groups(CutAxis::kExpert, spec.layer);
  if (w.bias != kNoTensor && table_.tensors[static_cast<size_t>(w.bias)].columns != spec.rows) {
    return fail(fmt::format("tensor {} has rows of {}, wanted {}", table_.tensors[static_cast<size_t>(w.bias)].name,
                            table_.tensors[static_cast<size_t>(w.bias)].columns, spec.rows));
  }
  if (w.scale != kNoTensor && table_.tensors[static_cast<size_t>(w.scale)].columns != n_experts) {
    return fail(fmt::format("tensor {} has {} elements for {} experts",
                            table_.tensors[static_cast<size_t>(w.scale)].name,
                            table_.tensors[static_cast<size_t>(w.scale)].columns, n_experts));
  }
  return add_node(ExpertLinearNode{w}, {x.id, routing.id},
                  new_value(ValueKind::kExpertRows, CutAxis::kExpert, spec.layer, spec.rows, false));
}

Value Builder::expert_sum(Value rows, Value routing) {
  if (bad(rows) || bad(routing)) {
    return {};
  }
  const ValueInfo in = info(rows);
  if (in.kind != ValueKind::kExpertRows) {
    return fail("expert_sum wants expert rows");
  }
  return add_node(ExpertSumNode{}, {rows.id, routing.id},
                  new_value(ValueKind::kPartial, CutAxis::kExpert, in.layer, in.width, false));
}

Value Builder::gate_rows(TensorIndex gate, Value x, Value h) {
  if (bad(x) || bad(h)) {
    return {};
  }
  const ValueInfo in = info(x);
  const TensorSpec& spec = table_.tensors[static_cast<size_t>(gate)];
  if (in.kind != ValueKind::kWhole || info(h).kind != ValueKind::kWhole || in.per_output || info(h).per_output ||
      spec.rows != 1 || spec.columns != info(h).width) {
    return fail(
        fmt::format("tensor {} is [{}, {}], wanted [1, {}]", spec.name, spec.rows, spec.columns, info(h).width));
  }
  return add_node(GateRowsNode{gate}, {x.id, h.id}, new_value(ValueKind::kWhole, CutAxis::kNone, -1, in.width, false));
}

}  // namespace tessera

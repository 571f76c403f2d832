// Lowerer's nodes around recurrent state: short convolution, gates, delta rule, gated norm, divided heads.

#include <bit>

#include "kernels/ops/delta_gates.h"
#include "kernels/ops/delta_rule.h"
#include "kernels/ops/gated_norm.h"
#include "kernels/ops/short_conv.h"
#include "kernels/ops/split_heads.h"
#include "program/lower/lowerer.h"

namespace tessera {

using Addresses = Recorder::Addresses;

RecFormat Lowerer::rec_format(int32_t layer) const {
  const RecLayerSpec& spec = program_.rec_layers[static_cast<size_t>(layer)];
  return {spec.n_key_heads, spec.n_rep, spec.k_dim, spec.v_dim, spec.n_taps, spec.tiled};
}

std::vector<RecPanel> Lowerer::rec_panels(int32_t layer, int device) const {
  std::vector<RecPanel> panels;
  int64_t group = 0;
  const CutMask cuts = held_cuts(*in_.tiles, *in_.placement, CutAxis::kAttention, layer, device);
  for (CutMask rest = cuts; rest != 0; rest &= rest - 1) {
    const int cut = std::countr_zero(rest);
    const IndexRange groups = in_.tiles->cuts(CutAxis::kAttention, layer).groups(cut);
    panels.push_back(
        {in_.rec_bases[static_cast<size_t>(layer * in_.tiles->n_cuts + cut)], groups.size(), group, groups.begin});
    group += groups.size();
  }
  return panels;
}

void Lowerer::lower_split_heads(const Node& node, const SplitHeadsNode& op) {
  for (const int device : devices_of(node)) {
    const Instance x = instance(node.inputs[0], device);
    const Instance first = make_instance(node.outputs[0], device);
    const Instance second = make_instance(node.outputs[1], device);
    record<SplitHeadsArgs>(Op::kSplitHeads, device, {x.buffer}, {first.buffer, second.buffer},
                           [=](SplitHeadsArgs& a, const Addresses& at) {
                             a.x = at.floats(x.buffer);
                             a.first = at.floats(first.buffer);
                             a.second = at.floats(second.buffer);
                             a.n_heads = first.width / op.head_dim;
                             a.head_dim = op.head_dim;
                           });
  }
}

void Lowerer::lower_short_conv(const Node& node, const ShortConvNode& op) {
  const RecFormat format = rec_format(op.layer);
  for (const int device : devices_of(node)) {
    const Instance x = instance(node.inputs[0], device);
    const Instance y = make_instance(node.outputs[0], device);
    const BufferId rows = uploads_.at({device, host_.rec_rows});
    const BufferId runs = uploads_.at({device, host_.rec_runs});
    const float* weight = replica(op.weight, device);
    const std::vector<RecPanel> panels = rec_panels(op.layer, device);
    record<ShortConvArgs>(Op::kShortConv, device, {x.buffer, rows, runs}, {y.buffer},
                          [=](ShortConvArgs& a, const Addresses& at) {
                            a.x = at.floats(x.buffer);
                            a.x_stride = x.width;
                            a.y = at.floats(y.buffer);
                            a.y_stride = y.width;
                            a.weight = weight;
                            a.format = format;
                            a.panels = panels;
                            a.rows = {at.ints(rows), reinterpret_cast<const RecRun*>(at.bytes(runs))};
                          });
  }
}

void Lowerer::lower_delta_gates(const Node& node, const DeltaGatesNode& op) {
  const RecFormat format = rec_format(op.layer);
  for (const int device : devices_of(node)) {
    const Instance alpha = instance(node.inputs[0], device);
    const Instance beta = instance(node.inputs[1], device);
    const Instance log_decay = make_instance_over(node.outputs[0], node.inputs[0], device);
    const Instance strength = make_instance_over(node.outputs[1], node.inputs[1], device);
    const float* dt_bias = replica(op.dt_bias, device);
    const float* decay_rate = replica(op.a, device);
    const std::vector<RecPanel> panels = rec_panels(op.layer, device);
    record<DeltaGatesArgs>(Op::kDeltaGates, device, {alpha.buffer, beta.buffer}, {log_decay.buffer, strength.buffer},
                           [=](DeltaGatesArgs& a, const Addresses& at) {
                             a.alpha = at.floats(alpha.buffer);
                             a.beta = at.floats(beta.buffer);
                             a.log_decay = at.floats(log_decay.buffer);
                             a.strength = at.floats(strength.buffer);
                             a.stride = alpha.width;
                             a.dt_bias = dt_bias;
                             a.a = decay_rate;
                             a.format = format;
                             a.panels = panels;
                           });
  }
}

void Lowerer::lower_delta_rule(const Node& node, const DeltaRuleNode& op) {
  const RecFormat format = rec_format(op.layer);
  for (const int device : devices_of(node)) {
    const Instance qkv = instance(node.inputs[0], device);
    const Instance log_decay = instance(node.inputs[1], device);
    const Instance strength = instance(node.inputs[2], device);
    const Instance y = make_instance(node.outputs[0], device);
    const BufferId rows = uploads_.at({device, host_.rec_rows});
    const BufferId runs = uploads_.at({device, host_.rec_runs});
    const std::vector<RecPanel> panels = rec_panels(op.layer, device);
    record<DeltaRuleArgs>(Op::kDeltaRule, device, {qkv.buffer, log_decay.buffer, strength.buffer, rows, runs},
                          {y.buffer}, [=](DeltaRuleArgs& a, const Addresses& at) {
                            a.qkv = at.floats(qkv.buffer);
                            a.qkv_stride = qkv.width;
                            a.log_decay = at.floats(log_decay.buffer);
                            a.strength = at.floats(strength.buffer);
                            a.gate_stride = log_decay.width;
                            a.out = at.floats(y.buffer);
                            a.out_stride = y.width;
                            a.eps = op.eps;
                            a.format = format;
                            a.panels = panels;
                            a.rows = {at.ints(rows), reinterpret_cast<const RecRun*>(at.bytes(runs))};
                          });
  }
}

void Lowerer::lower_gated_norm(const Node& node, const GatedNormNode& op) {
  const int64_t width = tensor(op.weight).columns;
  for (const int device : devices_of(node)) {
    const Instance x = instance(node.inputs[0], device);
    const Instance z = instance(node.inputs[1], device);
    const Instance y = make_instance_over(node.outputs[0], node.inputs[0], device);
    const float* weight = replica(op.weight, device);
    record<GatedNormArgs>(Op::kGatedNorm, device, {x.buffer, z.buffer}, {y.buffer},
                          [=](GatedNormArgs& a, const Addresses& at) {
                            a.x = at.floats(x.buffer);
                            a.x_stride = x.width;
                            a.z = at.floats(z.buffer);
                            a.z_stride = z.width;
                            a.weight = weight;
                            a.y = at.floats(y.buffer);
                            a.y_stride = y.width;
                            a.n_groups = y.width / width;
                            a.width = width;
                            a.eps = op.eps;
                          });
  }
}

}  // namespace tessera

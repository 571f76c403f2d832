// Lowerer's nodes other than products and reduces: one function per kind of node.

#include <bit>

#include "kernels/ops/add.h"
#include "kernels/ops/affine.h"
#include "kernels/ops/append_kv.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/gather_rows.h"
#include "kernels/ops/glu.h"
#include "kernels/ops/quantize.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/rope_table.h"
#include "kernels/ops/scale.h"
#include "program/lower/lowerer.h"

namespace tessera {

using Addresses = Recorder::Addresses;

namespace {

Activation glu_activation(GluActivation activation) {
  switch (activation) {
    case GluActivation::kSilu: return Activation::kSilu;
    case GluActivation::kGeluTanh: return Activation::kGeluTanh;
    case GluActivation::kSigmoid: return Activation::kSigmoid;
    case GluActivation::kSiluClamped: break;
  }
  return Activation::kSiluClamped;
}

}  // namespace

void Lowerer::lower_node(NodeId id) {
  if (done_[static_cast<size_t>(id)]) {
    return;
  }
  const Node& node = program_.nodes[static_cast<size_t>(id)];
  struct Visitor {
    Lowerer& self;
    const Node& node;
    NodeId id;
    void operator()(const EmbedNode&) {}  // upload_inputs() has made its instances
    void operator()(const RmsNormNode& op) { self.lower_rms_norm(node, op); }
    void operator()(const LinearNode&) { self.lower_products(id); }
    void operator()(const AffineNode& op) { self.lower_affine(node, op); }
    void operator()(const ReduceNode& op) { self.lower_reduce(id, op); }
    void operator()(const AddNode&) { self.lower_add(node); }
    void operator()(const ScaleNode& op) { self.lower_scale(node, op); }
    void operator()(const RopeTableNode& op) { self.lower_rope_table(node, op); }
    void operator()(const RopeNode& op) { self.lower_rope(node, op); }
    void operator()(const AppendNode& op) { self.lower_append(node, op); }
    void operator()(const AttentionNode& op) { self.lower_attention(node, op); }
    void operator()(const GluNode& op) { self.lower_glu(node, op); }
    void operator()(const SplitHeadsNode& op) { self.lower_split_heads(node, op); }
    void operator()(const ShortConvNode& op) { self.lower_short_conv(node, op); }
    void operator()(const DeltaGatesNode& op) { self.lower_delta_gates(node, op); }
    void operator()(const DeltaRuleNode& op) { self.lower_delta_rule(node, op); }
    void operator()(const GatedNormNode& op) { self.lower_gated_norm(node, op); }
    void operator()(const GatherOutputsNode&) { self.lower_gather(node); }
    void operator()(const LogitsNode&) { self.lower_logits(node); }
    void operator()(const EmbeddingsNode&) { self.lower_embeddings(node); }
    void operator()(const RouteNode& op) { self.lower_route(node, op); }
    void operator()(const ExpertLinearNode&) { self.lower_expert_linear(id); }
    void operator()(const ExpertSumNode&) { self.lower_expert_sum(node); }
    void operator()(const GateRowsNode& op) { self.lower_gate_rows(node, op); }
  };
  std::visit(Visitor{*this, node, id}, node.op);
  if (!node.outputs.empty() && value(node.outputs[0]).kind == ValueKind::kWhole) {
    send_copies(node.outputs[0]);
  }
}

void Lowerer::lower_rms_norm(const Node& node, const RmsNormNode& op) {
  for (const int device : devices_of(node)) {
    const Instance x = instance(node.inputs[0], device);
    Instance& y = make_instance(node.outputs[0], device);
    const bool per_output = value(node.outputs[0]).per_output;
    std::vector<BufferId> writes = {y.buffer};
    if (op.group_width == y.width && wants_q8(node.outputs[0], device)) {
      y.q8 = recorder_.scratch(device, max_rows(value(node.outputs[0])) * q8_row_bytes(y.width));
      writes.push_back(y.q8);
    }
    const float* weight = op.weight == kNoTensor ? nullptr : replica(op.weight, device);
    record<RmsNormArgs>(Op::kRmsNorm, device, {x.buffer}, writes, [=, y = y](RmsNormArgs& a, const Addresses& at) {
      a.x = at.floats(x.buffer);
      a.x_stride = x.width;
      a.weight = weight;
      a.y = at.floats(y.buffer);
      a.y_stride = y.width;
      a.n_groups = y.width / op.group_width;
      a.width = op.group_width;
      a.eps = op.eps;
      a.per_output = per_output;
      a.q8 = y.q8 < 0 ? nullptr : at.bytes(y.q8);
    });
  }
}

// One step per run of neighbouring cuts: their columns are neighbours in the bias as well.
void Lowerer::lower_affine(const Node& node, const AffineNode& op) {
  const ValueInfo& v = value(node.outputs[0]);
  const AxisCuts& cuts = in_.tiles->cuts(v.axis, v.layer);
  for (const int device : devices_of(node)) {
    const Instance x = instance(node.inputs[0], device);
    const Instance y = make_instance_over(node.outputs[0], node.inputs[0], device);
    int64_t column = 0;
    for (CutMask rest = y.cuts; rest != 0;) {
      const int first = std::countr_zero(rest);
      int64_t width = 0;
      for (int cut = first; (rest >> cut & 1U) != 0; ++cut) {
        width += cut_width(v, cut);
        rest &= ~(CutMask{1} << cut);
      }
      const float* scale = op.scale == kNoTensor ? nullptr : replica(op.scale, device);
      const float* bias =
          op.bias == kNoTensor ? nullptr : replica(op.bias, device) + cuts.groups(first).begin * v.width;
      record<AffineArgs>(Op::kAffine, device, {x.buffer}, {y.buffer}, [=](AffineArgs& a, const Addresses& at) {
        a.x = at.floats(x.buffer) + column;
        a.x_stride = x.width;
        a.y = at.floats(y.buffer) + column;
        a.y_stride = y.width;
        a.width = width;
        a.scale = scale;
        a.bias = bias;
        a.per_output = v.per_output;
      });
      column += width;
    }
  }
}

void Lowerer::lower_add(const Node& node) {
  for (const int device : devices_of(node)) {
    const Instance a_in = instance(node.inputs[0], device);
    const Instance b_in = instance(node.inputs[1], device);
    const Instance y = make_instance(node.outputs[0], device);
    const bool per_output = value(node.outputs[0]).per_output;
    record<AddArgs>(Op::kAdd, device, {a_in.buffer, b_in.buffer}, {y.buffer}, [=](AddArgs& a, const Addresses& at) {
      a.a = at.floats(a_in.buffer);
      a.a_stride = a_in.width;
      a.b = at.floats(b_in.buffer);
      a.b_stride = b_in.width;
      a.y = at.floats(y.buffer);
      a.y_stride = y.width;
      a.width = y.width;
      a.per_output = per_output;
    });
  }
}

void Lowerer::lower_scale(const Node& node, const ScaleNode& op) {
  for (const int device : devices_of(node)) {
    const Instance x = instance(node.inputs[0], device);
    const Instance y = make_instance_over(node.outputs[0], node.inputs[0], device);
    const bool per_output = value(node.outputs[0]).per_output;
    record<ScaleArgs>(Op::kScale, device, {x.buffer}, {y.buffer}, [=](ScaleArgs& a, const Addresses& at) {
      a.x = at.floats(x.buffer);
      a.x_stride = x.width;
      a.y = at.floats(y.buffer);
      a.y_stride = y.width;
      a.width = y.width;
      a.scale = op.scale;
      a.softcap = op.softcap;
      a.per_output = per_output;
    });
  }
}

void Lowerer::lower_rope_table(const Node& node, const RopeTableNode& op) {
  for (const int device : devices_of(node)) {
    const BufferId positions = uploads_.at({device, host_.positions});
    const Instance y = make_instance(node.outputs[0], device);
    const float* inv_freq = replica(op.inv_freq, device);
    record<RopeTableArgs>(Op::kRopeTable, device, {positions}, {y.buffer}, [=](RopeTableArgs& a, const Addresses& at) {
      a.positions = at.ints(positions);
      a.inv_freq = inv_freq;
      a.n_pairs = y.width / 2;
      a.magnitude = op.magnitude;
      a.table = at.floats(y.buffer);
    });
  }
}

void Lowerer::lower_rope(const Node& node, const RopeNode& op) {
  for (const int device : devices_of(node)) {
    const Instance table = instance(node.inputs[0], device);
    std::vector<BufferId> reads = {table.buffer};
    std::vector<BufferId> writes;
    std::vector<std::pair<Instance, Instance>> heads;  // input, output
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Instance x = instance(node.inputs[i + 1], device);
      const Instance y = make_instance_over(node.outputs[i], node.inputs[i + 1], device);
      reads.push_back(x.buffer);
      writes.push_back(y.buffer);
      heads.emplace_back(x, y);
    }
    record<RopeArgs>(Op::kRope, device, reads, writes, [=](RopeArgs& a, const Addresses& at) {
      for (const auto& [x, y] : heads) {
        a.inputs.push_back({at.floats(x.buffer), x.width, at.floats(y.buffer), y.width, x.width / op.head_dim});
      }
      a.head_dim = op.head_dim;
      a.n_pairs = op.n_pairs;
      a.neox = op.neox;
      a.table = at.floats(table.buffer);
    });
  }
}

void Lowerer::lower_append(const Node& node, const AppendNode& op) {
  const auto klass = static_cast<size_t>(classes_.of_layer[static_cast<size_t>(op.layer)]);
  const KvFormat format = kv_format(op.layer);
  for (const int device : devices_of(node)) {
    const Instance k = instance(node.inputs[0], device);
    const Instance v = instance(node.inputs[1], device);
    const BufferId slots = uploads_.at({device, host_.classes[klass].slots});
    const std::vector<KvPanel> panels = kv_panels(op.layer, device);
    record<AppendKvArgs>(
        Op::kAppendKv, device, {k.buffer, v.buffer, slots}, {},
        [=](AppendKvArgs& a, const Addresses& at) {
          a.k = at.floats(k.buffer);
          a.k_stride = k.width;
          a.v = at.floats(v.buffer);
          a.v_stride = v.width;
          a.slots = at.ints(slots);
          a.format = format;
          a.panels = panels;
        },
        in_.k_type, in_.v_type);
  }
}

// One step for all cuts that a device holds. Sinks lie in the order of the model's heads, so with them neighbouring
// cuts share a step.
std::vector<Lowerer::AttentionRun> Lowerer::attention_runs(const AttentionNode& op, int device) const {
  const std::vector<KvPanel> panels = kv_panels(op.layer, device);
  if (op.sinks == kNoTensor) {
    return {{panels, nullptr}};
  }
  const AxisCuts& cuts = in_.tiles->cuts(CutAxis::kAttention, op.layer);
  const CutMask held = held_cuts(*in_.tiles, *in_.placement, CutAxis::kAttention, op.layer, device);
  std::vector<AttentionRun> runs;
  int64_t next = -1;  // KV head of the model that would continue the run
  size_t p = 0;
  for (CutMask rest = held; rest != 0; rest &= rest - 1, ++p) {
    const IndexRange heads = cuts.groups(std::countr_zero(rest));
    if (heads.begin != next) {
      // The kernel counts heads from the device's first.
      runs.push_back({{}, replica(op.sinks, device) + (heads.begin - panels[p].kv_head_begin) * op.n_rep});
    }
    runs.back().panels.push_back(panels[p]);
    next = heads.end;
  }
  return runs;
}

void Lowerer::lower_attention(const Node& node, const AttentionNode& op) {
  const auto klass = static_cast<size_t>(classes_.of_layer[static_cast<size_t>(op.layer)]);
  const KvFormat format = kv_format(op.layer);
  for (const int device : devices_of(node)) {
    const Instance q = instance(node.inputs[0], device);
    const Instance y = make_instance(node.outputs[0], device);
    const BufferId positions = uploads_.at({device, host_.positions});
    const BufferId seq_rows = uploads_.at({device, host_.seq_rows});
    const BufferId pages = uploads_.at({device, host_.classes[klass].page_table});
    const int64_t row_pages = in_.shape.row_pages;
    for (const AttentionRun& run : attention_runs(op, device)) {
      record<AttentionArgs>(
          Op::kAttention, device, {q.buffer, positions, seq_rows, pages}, {y.buffer},
          [=](AttentionArgs& a, const Addresses& at) {
            a.q = at.floats(q.buffer);
            a.q_stride = q.width;
            a.out = at.floats(y.buffer);
            a.out_stride = y.width;
            a.n_rep = op.n_rep;
            a.format = format;
            a.panels = run.panels;
            a.positions = at.ints(positions);
            a.seq_rows = at.ints(seq_rows);
            a.page_table = at.ints(pages);
            a.page_table_stride = row_pages;
            a.scale = op.scale;
            a.softcap = op.softcap;
            a.window = op.window;
            a.sinks = run.sinks;
          },
          in_.k_type, in_.v_type);
    }
  }
}

void Lowerer::lower_glu(const Node& node, const GluNode& op) {
  for (const int device : devices_of(node)) {
    const Instance gate = instance(node.inputs[0], device);
    const Instance up = instance(node.inputs[1], device);
    const bool quantized = wants_q8(node.outputs[0], device);
    const bool floats = !quantized || wants_floats(node.outputs[0], device);
    // Expert rows: the routing is the gate's; there are as many as the plan says.
    const ExpertRowsOf rows = expert_rows_of(node.inputs[0], device);
    Instance& y = rows.plan < 0 ? make_instance(node.outputs[0], device, floats)
                                : make_expert_rows(node.outputs[0], rows.routing, device, floats);
    std::vector<BufferId> reads = {gate.buffer, up.buffer};
    if (rows.plan >= 0) {
      reads.push_back(rows.plan);
    }
    std::vector<BufferId> writes;
    if (y.buffer >= 0) {
      writes.push_back(y.buffer);
    }
    if (quantized) {
      const int64_t max_rows = rows.plan < 0 ? in_.shape.n_tokens : max_expert_rows(rows.routing);
      y.q8 = recorder_.scratch(device, max_rows * q8_row_bytes(y.width));
      writes.push_back(y.q8);
    }
    record<GluArgs>(Op::kGlu, device, reads, writes, [=, y = y](GluArgs& a, const Addresses& at) {
      a.gate = at.floats(gate.buffer);
      a.gate_stride = gate.width;
      a.up = at.floats(up.buffer);
      a.up_stride = up.width;
      a.y = y.buffer < 0 ? nullptr : at.floats(y.buffer);
      a.y_stride = y.width;
      a.width = y.width;
      a.activation = glu_activation(op.activation);
      a.limit = op.limit;
      a.alpha = op.alpha;
      a.n_rows = rows.plan < 0 ? nullptr : at.ints(rows.plan) + rows.n_experts;
      a.q8 = y.q8 < 0 ? nullptr : at.bytes(y.q8);
    });
  }
}

void Lowerer::lower_gather(const Node& node) {
  const bool is_embedding = value(node.outputs[0]).is_embedding;
  for (const int device : devices_of(node)) {
    if (is_embedding) {
      recorder_.close_segment(device);  // what follows is not always submitted
    }
    const Instance x = instance(node.inputs[0], device);
    const Instance y = make_instance(node.outputs[0], device);
    const BufferId rows = uploads_.at({device, is_embedding ? host_.embedding_rows : host_.output_rows});
    record<GatherRowsArgs>(Op::kGatherRows, device, {x.buffer, rows}, {y.buffer},
                           [=](GatherRowsArgs& a, const Addresses& at) {
                             a.x = at.floats(x.buffer);
                             a.x_stride = x.width;
                             a.rows = at.ints(rows);
                             a.y = at.floats(y.buffer);
                             a.y_stride = y.width;
                             a.width = y.width;
                           });
  }
}

// Each cut's columns go to their place in the host's rows.
void Lowerer::lower_logits(const Node& node) {
  const ValueInfo& v = value(node.inputs[0]);
  const AxisCuts& cuts = in_.tiles->cuts(v.axis, v.layer);
  const auto host_row = static_cast<uint64_t>(program_.n_vocab) * sizeof(float);
  for (const int device : devices_of(node)) {
    const Instance x = instance(node.inputs[0], device);
    int64_t column = 0;
    for (CutMask rest = x.cuts; rest != 0; rest &= rest - 1) {
      const int cut = std::countr_zero(rest);
      const int64_t width = cut_width(v, cut);
      const int64_t first = cuts.groups(cut).begin * v.width;
      const auto host = in_.host_logits;
      recorder_.step(device, {x.buffer}, {}, [=](const Addresses& at) {
        Command command;
        float* target = host[static_cast<size_t>(at.parity)];
        command.copy = {target == nullptr ? nullptr : target + first,
                        at.floats(x.buffer) + column,
                        host_row,
                        static_cast<uint64_t>(x.width) * sizeof(float),
                        static_cast<uint64_t>(width) * sizeof(float),
                        1,
                        RowCount::kOutputs};
        command.name = "download logits";
        return command;
      });
      column += width;
    }
    result_.download_segments.push_back(recorder_.current_segment(device));
  }
}

void Lowerer::lower_embeddings(const Node& node) {
  for (const int device : devices_of(node)) {
    const Instance x = instance(node.inputs[0], device);
    const auto row = static_cast<uint64_t>(x.width) * sizeof(float);
    const auto host = in_.host_embeddings;
    recorder_.step(device, {x.buffer}, {}, [=](const Addresses& at) {
      Command command;
      command.copy = {host[static_cast<size_t>(at.parity)], at.floats(x.buffer), row, row, row, 1, RowCount::kOutputs};
      command.name = "download embeddings";
      return command;
    });
    result_.embedding_segment = recorder_.current_segment(device);
  }
}

}  // namespace tessera

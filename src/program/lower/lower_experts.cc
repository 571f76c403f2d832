// Lowerer's experts: routing once, then on every device that holds experts a plan of expert rows, products over those
// rows, and one partial per cut.

#include <algorithm>
#include <bit>
#include <fmt/format.h>

#include "base/checked.h"
#include "kernels/ops/expert_gather.h"
#include "kernels/ops/expert_matmul.h"
#include "kernels/ops/expert_rows.h"
#include "kernels/ops/expert_sum.h"
#include "kernels/ops/expert_upload.h"
#include "kernels/ops/gate_rows.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/quantize.h"
#include "kernels/ops/route.h"
#include "program/lower/lowerer.h"

namespace tessera {

using Addresses = Recorder::Addresses;

namespace {

constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

RouteGating route_gating(Gating gating) {
  switch (gating) {
    case Gating::kSoftmax: return RouteGating::kSoftmax;
    case Gating::kSigmoid: return RouteGating::kSigmoid;
    case Gating::kSoftmaxOfChosen: return RouteGating::kSoftmaxOfChosen;
    case Gating::kSqrtSoftplus: break;
  }
  return RouteGating::kSqrtSoftplus;
}

/// Which panel of a tile is a tensor's.
size_t panel_index(const Tile& tile, TensorIndex tensor) {
  size_t p = 0;
  while (tile.panels[p].tensor != tensor) {
    ++p;
  }
  return p;
}

}  // namespace

// A cut's pieces are added up where its experts are computed: at one place.
Status Lowerer::check_experts() const {
  for (int32_t l = 0; l < static_cast<int32_t>(table_.layers.size()); ++l) {
    const AxisCuts& cuts = in_.tiles->cuts(CutAxis::kExpert, l);
    for (int c = 0; c < in_.tiles->n_cuts; ++c) {
      const IndexRange experts = cuts.groups(c);
      for (int64_t e = experts.begin; e < experts.end; ++e) {
        if (expert_worker(l, e) != expert_worker(l, experts.begin)) {
          return {ErrorCode::kUnsupported,
                  fmt::format("experts {} and {} of layer {} belong to one cut and live on two devices; raise --cuts",
                              experts.begin, e, l)};
        }
      }
    }
  }
  return {};
}

int32_t Lowerer::expert_worker(int32_t layer, int64_t expert) const {
  return in_.placement->works_on(static_cast<size_t>(in_.tiles->find_expert(layer, expert)));
}

// [n_tokens, rows] = h times a float32 matrix that every device holds.
BufferId Lowerer::replica_product(TensorIndex matrix, ValueId input, int device) {
  const TensorSpec& spec = tensor(matrix);
  const Instance x = instance(input, device);
  const BufferId y = recorder_.scratch(device, in_.shape.n_tokens * spec.rows * kFloatBytes);
  const float* weights = replica(matrix, device);
  record<MatmulArgs>(Op::kMatmul, device, {x.buffer}, {y},
                     [=, rows = spec.rows, columns = spec.columns](MatmulArgs& a, const Addresses& at) {
                       a.x = at.floats(x.buffer);
                       a.x_stride = x.width;
                       a.panels.push_back({DType::kF32, weights, rows, columns, 0, at.floats(y), rows});
                     });
  return y;
}

void Lowerer::lower_route(const Node& node, const RouteNode& op) {
  const int64_t n_experts = table_.n_groups(CutAxis::kExpert, op.layer);
  for (const int device : devices_of(node)) {
    const BufferId logits = replica_product(op.router, node.inputs[0], device);
    const Instance y = make_instance(node.outputs[0], device);
    const float* bias = op.bias == kNoTensor ? nullptr : replica(op.bias, device);
    const float* selection_bias = op.selection_bias == kNoTensor ? nullptr : replica(op.selection_bias, device);
    record<RouteArgs>(Op::kRoute, device, {logits}, {y.buffer}, [=](RouteArgs& a, const Addresses& at) {
      a.logits = at.floats(logits);
      a.bias = bias;
      a.selection_bias = selection_bias;
      a.n_experts = n_experts;
      a.n_used = op.rule.n_used;
      a.n_groups = op.rule.n_groups;
      a.n_groups_used = op.rule.n_groups_used;
      a.gating = route_gating(op.rule.gating);
      a.normalize = op.rule.normalize;
      a.scale = op.rule.scale;
      a.routing = reinterpret_cast<int32_t*>(at.bytes(y.buffer));
    });
  }
}

int64_t Lowerer::max_expert_rows(ValueId routing) const {
  return in_.shape.n_tokens * (value(routing).width / 2);
}

// The plan of this device's expert rows, made when they are first needed.
BufferId Lowerer::ensure_plan(ValueId routing, int32_t layer, int device) {
  const auto known = plans_.find({routing, device});
  if (known != plans_.end()) {
    return known->second;
  }
  const int64_t n_experts = table_.n_groups(CutAxis::kExpert, layer);
  const int64_t n_used = value(routing).width / 2;
  const int64_t max_rows = max_expert_rows(routing);
  std::vector<uint8_t> held(static_cast<size_t>(n_experts));
  for (int64_t e = 0; e < n_experts; ++e) {
    held[static_cast<size_t>(e)] = expert_worker(layer, e) == device ? 1 : 0;
  }
  const BufferId from = instance(routing, device).buffer;
  const BufferId plan = recorder_.scratch(device, expert_plan_bytes(n_experts, max_rows));
  record<ExpertRowsArgs>(Op::kExpertRows, device, {from}, {plan}, [=](ExpertRowsArgs& a, const Addresses& at) {
    a.routing = at.ints(from);
    a.n_used = n_used;
    a.n_experts = n_experts;
    a.held = held;
    a.plan = expert_plan(reinterpret_cast<int32_t*>(at.bytes(plan)), n_experts, max_rows);
  });
  return plans_[{routing, device}] = plan;
}

Lowerer::ExpertRowsOf Lowerer::expert_rows_of(ValueId id, int device) {
  const ValueInfo& v = value(id);
  if (v.kind != ValueKind::kExpertRows) {
    return {};
  }
  // Every way to expert rows begins with a product, whose second input is the routing.
  const Node* node = &program_.nodes[static_cast<size_t>(v.producer)];
  while (!std::holds_alternative<ExpertLinearNode>(node->op)) {
    node = &program_.nodes[static_cast<size_t>(value(node->inputs[0]).producer)];
  }
  return {node->inputs[1], ensure_plan(node->inputs[1], v.layer, device), table_.n_groups(CutAxis::kExpert, v.layer)};
}

// A copy of each expert row's token: what products of a whole value read.
BufferId Lowerer::gather_tokens(BufferId from, int64_t row_bytes, ValueId routing, int32_t layer, int device) {
  const int64_t n_experts = table_.n_groups(CutAxis::kExpert, layer);
  const int64_t max_rows = max_expert_rows(routing);
  const BufferId plan = ensure_plan(routing, layer, device);
  const BufferId to = recorder_.scratch(device, max_rows * row_bytes);
  record<ExpertGatherArgs>(
      Op::kExpertGather, device, {from, plan}, {to}, [=](ExpertGatherArgs& a, const Addresses& at) {
        const ExpertPlan p = expert_plan(reinterpret_cast<int32_t*>(at.bytes(plan)), n_experts, max_rows);
        a.x = at.bytes(from);
        a.row_bytes = row_bytes;
        a.n_rows = p.begins + n_experts;
        a.tokens = p.tokens;
        a.y = at.bytes(to);
      });
  return to;
}

Lowerer::Instance& Lowerer::make_expert_rows(ValueId id, ValueId routing, int device, bool with_floats) {
  Instance rows;
  rows.width = value(id).width;
  if (with_floats) {
    rows.buffer = recorder_.scratch(device, max_expert_rows(routing) * rows.width * kFloatBytes);
  }
  return instances_[{id, device}] = rows;
}

// The products of this node's inputs with experts of this layer: gate and up.
void Lowerer::lower_expert_linear(NodeId id) {
  const Node& node = program_.nodes[static_cast<size_t>(id)];
  std::vector<Product> products;
  for (const NodeId other : consumers_[static_cast<size_t>(node.inputs[0])]) {
    const Node& n = program_.nodes[static_cast<size_t>(other)];
    const auto* linear = std::get_if<ExpertLinearNode>(&n.op);
    if (linear != nullptr && n.inputs == node.inputs) {
      products.push_back({other, linear->w.weight, n.outputs[0]});
      done_[static_cast<size_t>(other)] = true;
    }
  }
  for (const int device : devices_of(node)) {
    record_expert_products(products, node, device);
  }
}

// Whether some expert that this device computes lives elsewhere.
bool Lowerer::streams_experts(int32_t layer, int device) const {
  const int64_t n_experts = table_.n_groups(CutAxis::kExpert, layer);
  for (int64_t e = 0; e < n_experts; ++e) {
    const auto tile = static_cast<size_t>(in_.tiles->find_expert(layer, e));
    if (in_.placement->works_on(tile) == device && in_.placement->home[tile] != device) {
      return true;
    }
  }
  return false;
}

// Where the parts of a tensor lie, by expert; null where another device computes the expert.
std::vector<const std::byte*> Lowerer::expert_addresses(TensorIndex tensor_index, int device) const {
  const int32_t layer = tensor(tensor_index).layer;
  const int64_t n_experts = table_.n_groups(CutAxis::kExpert, layer);
  std::vector<const std::byte*> addresses;
  for (int64_t e = 0; e < n_experts; ++e) {
    const auto tile = static_cast<size_t>(in_.tiles->find_expert(layer, e));
    const LowerDevice& home = in_.devices[static_cast<size_t>(in_.placement->home[tile])];
    const size_t p = panel_index(in_.tiles->tiles[tile], tensor_index);
    const bool here = in_.placement->works_on(tile) == device;
    addresses.push_back(here ? home.tiles + in_.placement->offset[tile] + (*home.tile_layouts)[tile].panel_offsets[p]
                             : nullptr);
  }
  return addresses;
}

Lowerer::ExpertPanelPlan Lowerer::plan_expert_panel(const Weight& w, int device) const {
  const TensorSpec& spec = tensor(w.weight);
  ExpertPanelPlan plan;
  plan.panel.dtype = spec.dtype;
  plan.panel.rows = spec.rows;
  plan.panel.columns = spec.columns;
  plan.panel.scale = w.scale == kNoTensor ? nullptr : replica(w.scale, device);
  for (const std::byte* address : expert_addresses(w.weight, device)) {
    plan.panel.weights.push_back(address);
  }
  if (w.bias != kNoTensor) {
    for (const std::byte* address : expert_addresses(w.bias, device)) {
      plan.panel.bias.push_back(reinterpret_cast<const float*>(address));
    }
  }
  return plan;
}

// What slots hold for these products, and where in a slot each panel finds its part.
Lowerer::SlotPlan Lowerer::plan_slots(const std::vector<Product>& products, std::vector<ExpertPanelPlan>& panels,
                                      int device) {
  SlotPlan slots;
  const auto add_part = [&](TensorIndex t) {
    const TensorSpec& spec = tensor(t);
    ExpertPart part;
    part.sources = expert_addresses(t, device);
    part.bytes =
        static_cast<int64_t>(kernels(device).layout(spec.dtype)->packed_bytes(spec.dtype, spec.rows, spec.columns));
    part.offset = slots.slot_bytes;
    slots.slot_bytes += static_cast<int64_t>(round_up(static_cast<uint64_t>(part.bytes), kPanelAlignment));
    slots.parts.push_back(std::move(part));
    return slots.parts.back().offset;
  };
  for (size_t i = 0; i < products.size(); ++i) {
    const Weight& w = std::get<ExpertLinearNode>(program_.nodes[static_cast<size_t>(products[i].node)].op).w;
    ExpertPanel& panel = panels[i].panel;
    panel.weights.clear();
    panel.bias.clear();
    panel.weight_offset = add_part(w.weight);
    panel.bias_offset = w.bias == kNoTensor ? -1 : add_part(w.bias);
  }
  slots.n_held = std::ranges::count_if(slots.parts.front().sources, [](const std::byte* p) { return p != nullptr; });
  slots.n_slots = std::min(in_.n_expert_slots, slots.n_held);
  slots.slots = recorder_.scratch(device, slots.n_slots * slots.slot_bytes);
  slots.table = recorder_.scratch(device, table_.n_groups(CutAxis::kExpert, tensor(products[0].tensor).layer) *
                                              static_cast<int64_t>(sizeof(int32_t)));
  return slots;
}

void Lowerer::record_upload(const SlotPlan& slots, BufferId plan, int64_t n_experts, int64_t first_rank, int device) {
  record<ExpertUploadArgs>(Op::kExpertUpload, device, {plan}, {slots.slots, slots.table},
                           [=](ExpertUploadArgs& a, const Addresses& at) {
                             a.begins = at.ints(plan);
                             a.n_experts = n_experts;
                             a.first_rank = first_rank;
                             a.n_slots = slots.n_slots;
                             a.parts = slots.parts;
                             a.slots = at.bytes(slots.slots);
                             a.slot_bytes = slots.slot_bytes;
                             a.table = reinterpret_cast<int32_t*>(at.bytes(slots.table));
                           });
}

// The rows that products of a node's inputs read, in the forms that their weights want.
Lowerer::ExpertInput Lowerer::expert_input(const std::vector<Product>& products, const Node& node, int device) {
  bool quantized = false;
  bool floats = false;
  for (const Product& product : products) {
    // Loading has checked that there is a layout.
    (kernels(device).layout(tensor(product.tensor).dtype)->quantized_input ? quantized : floats) = true;
  }
  const ValueId input = node.inputs[0];
  const bool whole = value(input).kind == ValueKind::kWhole;
  if (quantized && whole) {
    ensure_q8(input, device);
  }
  const Instance x = instance(input, device);
  const int32_t layer = value(node.outputs[0]).layer;
  const auto rows_of = [&](BufferId buffer, int64_t row_bytes) {
    return whole ? gather_tokens(buffer, row_bytes, node.inputs[1], layer, device) : buffer;
  };
  ExpertInput rows;
  if (quantized) {
    rows.q8 = rows_of(x.q8, q8_row_bytes(x.width));
    rows.buffers.push_back(rows.q8);
  }
  if (floats) {
    rows.floats = rows_of(x.buffer, x.width * kFloatBytes);
    rows.buffers.push_back(rows.floats);
  }
  return rows;
}

void Lowerer::record_expert_products(const std::vector<Product>& products, const Node& node, int device) {
  const ValueId routing = node.inputs[1];
  const int32_t layer = value(node.outputs[0]).layer;
  const int64_t n_experts = table_.n_groups(CutAxis::kExpert, layer);
  const BufferId plan = ensure_plan(routing, layer, device);
  const ExpertInput x = expert_input(products, node, device);
  std::vector<ExpertPanelPlan> panels;
  std::vector<BufferId> reads = x.buffers;
  reads.push_back(plan);
  std::vector<BufferId> writes;
  for (const Product& product : products) {
    const auto& op = std::get<ExpertLinearNode>(program_.nodes[static_cast<size_t>(product.node)].op);
    panels.push_back(plan_expert_panel(op.w, device));
    panels.back().y = make_expert_rows(product.output, routing, device, true).buffer;
    writes.push_back(panels.back().y);
  }
  SlotPlan slots;
  int64_t n_rounds = 1;
  if (streams_experts(layer, device)) {
    slots = plan_slots(products, panels, device);
    n_rounds = (std::min(slots.n_held, max_expert_rows(routing)) + slots.n_slots - 1) / slots.n_slots;
    reads.push_back(slots.slots);
    reads.push_back(slots.table);
  }
  for (int64_t round = 0; round < n_rounds; ++round) {
    if (slots.slots >= 0) {
      record_upload(slots, plan, n_experts, round * slots.n_slots, device);
    }
    record<ExpertMatmulArgs>(Op::kExpertMatmul, device, reads, writes, [=](ExpertMatmulArgs& a, const Addresses& at) {
      a.x = x.floats < 0 ? nullptr : at.floats(x.floats);
      a.q8 = x.q8 < 0 ? nullptr : at.bytes(x.q8);
      a.begins = at.ints(plan);
      a.n_experts = n_experts;
      if (slots.slots >= 0) {
        a.table = at.ints(slots.table);
        a.slots = at.bytes(slots.slots);
        a.slot_bytes = slots.slot_bytes;
      }
      for (const ExpertPanelPlan& p : panels) {
        a.panels.push_back(p.panel);
        a.panels.back().y = at.floats(p.y);
        a.panels.back().y_stride = p.panel.rows;
      }
    });
  }
}

void Lowerer::lower_expert_sum(const Node& node) {
  const ValueInfo& out = value(node.outputs[0]);
  const ValueId routing = node.inputs[1];
  const int64_t n_experts = table_.n_groups(CutAxis::kExpert, out.layer);
  const int64_t max_rows = max_expert_rows(routing);
  for (const int device : devices_of(node)) {
    const Instance x = instance(node.inputs[0], device);
    const BufferId chosen = instance(routing, device).buffer;
    const BufferId plan = ensure_plan(routing, out.layer, device);
    const Instance y = make_product_instance(node.outputs[0], device);
    std::vector<IndexRange> pieces;  // each cut's experts
    for (CutMask rest = y.cuts; rest != 0; rest &= rest - 1) {
      pieces.push_back(in_.tiles->cuts(CutAxis::kExpert, out.layer).groups(std::countr_zero(rest)));
    }
    const int64_t piece_floats = this->max_rows(out) * out.width;
    record<ExpertSumArgs>(
        Op::kExpertSum, device, {x.buffer, chosen, plan}, {y.buffer},
        [=, n_used = value(routing).width / 2](ExpertSumArgs& a, const Addresses& at) {
          a.x = at.floats(x.buffer);
          a.routing = at.ints(chosen);
          a.rows = expert_plan(reinterpret_cast<int32_t*>(at.bytes(plan)), n_experts, max_rows).rows;
          a.n_used = n_used;
          a.width = x.width;
          float* piece = at.floats(y.buffer);
          for (const IndexRange& experts : pieces) {
            a.pieces.push_back({static_cast<int32_t>(experts.begin), static_cast<int32_t>(experts.end), piece});
            piece += piece_floats;
          }
        });
  }
}

void Lowerer::lower_gate_rows(const Node& node, const GateRowsNode& op) {
  for (const int device : devices_of(node)) {
    const Instance x = instance(node.inputs[0], device);
    const BufferId gate = replica_product(op.gate, node.inputs[1], device);
    const Instance y = make_instance_over(node.outputs[0], node.inputs[0], device);
    record<GateRowsArgs>(Op::kGateRows, device, {x.buffer, gate}, {y.buffer},
                         [=](GateRowsArgs& a, const Addresses& at) {
                           a.x = at.floats(x.buffer);
                           a.gate = at.floats(gate);
                           a.y = at.floats(y.buffer);
                           a.width = y.width;
                         });
  }
}

}  // namespace tessera

// Lowerer's products: all weights that multiply one input on one device share a launch.

#include <bit>
#include <fmt/format.h>

#include "base/check.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/quantize.h"
#include "program/lower/lowerer.h"

namespace tessera {

using Addresses = Recorder::Addresses;

namespace {

/// The weight that a node multiplies its first input with, or null.
const Weight* weight_of(const Node& node) {
  if (const auto* linear = std::get_if<LinearNode>(&node.op)) {
    return &linear->w;
  }
  const auto* experts = std::get_if<ExpertLinearNode>(&node.op);
  return experts == nullptr ? nullptr : &experts->w;
}

}  // namespace

bool Lowerer::wants_q8(ValueId id, int device) const {
  for (const NodeId consumer : consumers_[static_cast<size_t>(id)]) {
    const Weight* w = weight_of(program_.nodes[static_cast<size_t>(consumer)]);
    if (w != nullptr) {
      const WeightLayout* layout = kernels(device).layout(tensor(w->weight).dtype);
      if (layout != nullptr && layout->quantized_input) {
        return true;
      }
    }
  }
  return false;
}

bool Lowerer::wants_floats(ValueId id, int device) const {
  for (const NodeId consumer : consumers_[static_cast<size_t>(id)]) {
    const Weight* w = weight_of(program_.nodes[static_cast<size_t>(consumer)]);
    if (w == nullptr) {
      return true;
    }
    const WeightLayout* layout = kernels(device).layout(tensor(w->weight).dtype);
    if (layout == nullptr || !layout->quantized_input) {
      return true;
    }
  }
  return false;
}

void Lowerer::ensure_q8(ValueId input, int device) {
  Instance& x = instance(input, device);
  if (x.q8 >= 0) {
    return;
  }
  const ValueInfo& v = value(input);
  x.q8 = recorder_.scratch(device, max_rows(v) * q8_row_bytes(x.width));
  record<QuantizeArgs>(Op::kQuantize, device, {x.buffer}, {x.q8},
                       [x = x, per_output = v.per_output](QuantizeArgs& a, const Addresses& at) {
                         a.x = at.floats(x.buffer);
                         a.x_stride = x.width;
                         a.columns = x.width;
                         a.q8 = at.bytes(x.q8);
                         a.per_output = per_output;
                       });
}

// The products of this node's input that live with the same tiles: q, k, v; gate, up.
std::vector<Lowerer::Product> Lowerer::products_of(NodeId first) const {
  const Node& node = program_.nodes[static_cast<size_t>(first)];
  const TensorSpec& lead = tensor(std::get<LinearNode>(node.op).w.weight);
  std::vector<Product> products;
  for (const NodeId id : consumers_[static_cast<size_t>(node.inputs[0])]) {
    const Node& other = program_.nodes[static_cast<size_t>(id)];
    const auto* linear = std::get_if<LinearNode>(&other.op);
    if (linear == nullptr) {
      continue;
    }
    const TensorSpec& spec = tensor(linear->w.weight);
    if (spec.tile == lead.tile && spec.layer == lead.layer && spec.cut.dim == lead.cut.dim) {
      products.push_back({id, linear->w.weight, other.outputs[0]});
    }
  }
  return products;
}

void Lowerer::lower_products(NodeId id) {
  const Node& node = program_.nodes[static_cast<size_t>(id)];
  const std::vector<Product> products = products_of(id);
  for (const int device : devices_of(node)) {
    record_products(products, node.inputs[0], device);
  }
  for (const Product& product : products) {
    done_[static_cast<size_t>(product.node)] = true;
  }
}

// A cut product's columns lie side by side; a partial has one whole matrix per cut that the device holds.
Lowerer::Instance Lowerer::make_product_instance(ValueId output, int device) {
  const ValueInfo& out = value(output);
  if (out.kind != ValueKind::kPartial) {
    return make_instance(output, device);
  }
  Instance y;
  y.width = out.width;
  y.cuts = held(out, device);
  const int64_t bytes = std::popcount(y.cuts) * max_rows(out) * out.width * static_cast<int64_t>(sizeof(float));
  const DeviceMask all = devices_of_axis(*in_.tiles, *in_.placement, out.axis, out.layer);
  y.buffer = std::popcount(all) > 1 ? recorder_.shared(device, bytes) : recorder_.scratch(device, bytes);
  return instances_[{output, device}] = y;
}

// One panel per cut that the device holds: where its weights lie, which input columns it reads, where it writes.
void Lowerer::plan_panels(const Product& product, int device, const Instance& y, std::vector<PanelPlan>& panels) const {
  const LowerDevice& target = in_.devices[static_cast<size_t>(device)];
  const TensorSpec& spec = tensor(product.tensor);
  const ValueInfo& out = value(product.output);
  const bool partial = out.kind == ValueKind::kPartial;
  int64_t y_column = 0;
  int64_t x_column = 0;
  for (CutMask rest = held(out, device); rest != 0; rest &= rest - 1) {
    const auto tile = static_cast<size_t>(in_.tiles->find(spec.tile, spec.layer, std::countr_zero(rest)));
    const std::vector<TilePanel>& geometry = in_.tiles->tiles[tile].panels;
    size_t p = 0;
    while (geometry[p].tensor != product.tensor) {
      ++p;
    }
    const TilePanel& panel = geometry[p];
    CHECK(panel.n_rows > 0 && panel.n_columns > 0);  // kernels share work by columns
    const std::byte* weights =
        target.tiles + in_.placement->offset[tile] + (*target.tile_layouts)[tile].panel_offsets[p];
    panels.push_back({spec.dtype, weights, panel.n_rows, panel.n_columns, x_column, y.buffer, y_column, y.width});
    if (partial) {
      y_column += max_rows(out) * out.width;
      x_column += panel.n_columns;
    } else {
      y_column += panel.n_rows;
    }
  }
}

void Lowerer::record_products(const std::vector<Product>& products, ValueId input, int device) {
  std::vector<PanelPlan> panels;
  std::vector<BufferId> writes;
  bool reads_q8 = false;
  bool reads_floats = false;
  for (const Product& product : products) {
    const DType dtype = tensor(product.tensor).dtype;
    const WeightLayout* layout = kernels(device).layout(dtype);
    if (layout == nullptr) {
      error_ = Status(ErrorCode::kUnsupported, fmt::format("kernel class {} has no product for {}",
                                                           kernels(device).kernel_class(), dtype_name(dtype)));
      return;
    }
    (layout->quantized_input ? reads_q8 : reads_floats) = true;
    const Instance y = make_product_instance(product.output, device);
    writes.push_back(y.buffer);
    plan_panels(product, device, y, panels);
  }
  if (reads_q8) {
    ensure_q8(input, device);
  }
  const Instance x = instance(input, device);
  std::vector<BufferId> reads;
  if (reads_q8) {
    reads.push_back(x.q8);
  }
  if (reads_floats) {
    reads.push_back(x.buffer);
  }
  record<MatmulArgs>(Op::kMatmul, device, reads, writes,
                     [=, per_output = value(input).per_output](MatmulArgs& a, const Addresses& at) {
                       a.x = reads_floats ? at.floats(x.buffer) : nullptr;
                       a.x_stride = x.width;
                       a.q8 = reads_q8 ? at.bytes(x.q8) : nullptr;
                       a.q8_columns = x.width;
                       a.per_output = per_output;
                       for (const PanelPlan& plan : panels) {
                         a.panels.push_back({plan.dtype, plan.weights, plan.rows, plan.columns, plan.column_begin,
                                             at.floats(plan.y) + plan.y_offset, plan.y_stride});
                       }
                     });
}

}  // namespace tessera

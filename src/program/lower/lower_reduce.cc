// Lowerer's reduces: the canonical tree over cuts, wherever the pieces lie.

#include <bit>

#include "kernels/ops/reduce.h"
#include "program/lower/lowerer.h"

namespace tessera {

using Addresses = Recorder::Addresses;

// The sub-trees that a device holds. For others (`for_others`) each is added up into one piece first; for the device's
// own reduce the pieces of single cuts do, since the tree's shape decides the order.
std::vector<Lowerer::Leaf> Lowerer::subtree_roots(ValueId partial, int device, bool for_others) {
  const ValueInfo& v = value(partial);
  const Instance x = instance(partial, device);
  const CutMask nonempty = nonempty_cuts(*in_.tiles, v.axis, v.layer);
  const int64_t piece = max_rows(v) * v.width;
  std::vector<Leaf> pieces;
  for (CutMask rest = x.cuts; rest != 0; rest &= rest - 1) {
    const int cut = std::countr_zero(rest);
    pieces.push_back({x.buffer, static_cast<int64_t>(pieces.size()) * piece, {cut, cut + 1}});
  }
  if (!for_others) {
    return pieces;
  }
  const auto known = roots_.find({partial, device});
  if (known != roots_.end()) {
    return known->second;
  }
  std::vector<Leaf> roots;
  for (const CutRange range : held_subtrees(in_.tiles->n_cuts, nonempty, x.cuts)) {
    std::vector<Leaf> inside;
    for (const Leaf& leaf : pieces) {
      if (leaf.range.lo >= range.lo && leaf.range.hi <= range.hi) {
        inside.push_back(leaf);
      }
    }
    if (inside.size() == 1) {
      roots.push_back({inside[0].buffer, inside[0].offset, range});
      continue;
    }
    const BufferId root = recorder_.shared(device, piece * static_cast<int64_t>(sizeof(float)));
    record_reduce(partial, device, inside, range, nonempty, root, nullptr, -1);
    roots.push_back({root, 0, range});
  }
  return roots_[{partial, device}] = roots;
}

void Lowerer::record_reduce(ValueId out, int device, const std::vector<Leaf>& leaves, CutRange range, CutMask nonempty,
                            BufferId y, const ReduceNode* epilogue, ValueId residual) {
  std::vector<CutRange> ranges;
  std::vector<BufferId> reads;
  for (const Leaf& leaf : leaves) {
    ranges.push_back(leaf.range);
    reads.push_back(leaf.buffer);
  }
  const std::vector<int8_t> order = tree_postfix(range, nonempty, ranges);
  const int64_t width = value(out).width;
  BufferId residual_buffer = -1;
  if (residual >= 0) {
    residual_buffer = instance(residual, device).buffer;
    reads.push_back(residual_buffer);
  }
  const float* scale = epilogue == nullptr || epilogue->scale == kNoTensor ? nullptr : replica(epilogue->scale, device);
  const float* bias = epilogue == nullptr || epilogue->bias == kNoTensor ? nullptr : replica(epilogue->bias, device);
  result_.stats.n_reduces += leaves.size() > 1 ? 1 : 0;
  record<ReduceArgs>(Op::kReduce, device, reads, {y}, [=](ReduceArgs& a, const Addresses& at) {
    for (const Leaf& leaf : leaves) {
      a.leaves.push_back({at.floats(leaf.buffer) + leaf.offset, width});
    }
    a.order = order;
    a.width = width;
    a.scale = scale;
    a.bias = bias;
    a.residual = residual_buffer < 0 ? nullptr : at.floats(residual_buffer);
    a.residual_stride = width;
    a.y = at.floats(y);
    a.y_stride = width;
  });
}

void Lowerer::lower_reduce(NodeId id, const ReduceNode& op) {
  const Node& node = program_.nodes[static_cast<size_t>(id)];
  const ValueId partial = node.inputs[0];
  const ValueInfo& v = value(partial);
  const CutMask nonempty = nonempty_cuts(*in_.tiles, v.axis, v.layer);
  // Fusion: the residual sum that is the reduce's only consumer and runs on the same devices joins it.
  ValueId out = node.outputs[0];
  ValueId residual = -1;
  const std::vector<NodeId>& users = consumers_[static_cast<size_t>(out)];
  if (users.size() == 1 && std::holds_alternative<AddNode>(program_.nodes[static_cast<size_t>(users[0])].op)) {
    const Node& sum = program_.nodes[static_cast<size_t>(users[0])];
    const ValueLocation& here = locations_.values[static_cast<size_t>(out)];
    if (here.copies.empty() && here.runs == locations_.values[static_cast<size_t>(sum.outputs[0])].runs) {
      const ValueId other = sum.inputs[0] == out ? sum.inputs[1] : sum.inputs[0];
      if (value(other).producer < id) {  // else it does not exist yet: the sum waits for it
        residual = other;
        out = sum.outputs[0];
        done_[static_cast<size_t>(users[0])] = true;
      }
    }
  }
  const DeviceMask holders = devices_of_axis(*in_.tiles, *in_.placement, v.axis, v.layer);
  for (const int device : devices_of(node)) {
    std::vector<Leaf> leaves;
    for (DeviceMask rest = holders; rest != 0; rest &= rest - 1) {
      const int holder = std::countr_zero(rest);
      if (holder == device) {
        const std::vector<Leaf> own = subtree_roots(partial, device, false);
        leaves.insert(leaves.end(), own.begin(), own.end());
        continue;
      }
      for (const Leaf& root : subtree_roots(partial, holder, true)) {
        const BufferId copy = recorder_.scratch(device, max_rows(v) * v.width * static_cast<int64_t>(sizeof(float)));
        const auto row = static_cast<uint64_t>(v.width) * sizeof(float);
        const RowCount count = v.per_output ? RowCount::kOutputs : RowCount::kTokens;
        recorder_.step(device, {root.buffer}, {copy}, [=](const Addresses& at) {
          Command command;
          command.copy = {at.bytes(copy), at.floats(root.buffer) + root.offset, row, row, row, 1, count};
          command.name = "copy partial";
          return command;
        });
        ++result_.stats.n_copies;
        result_.stats.copy_floats_per_token += v.width;
        leaves.push_back({copy, 0, root.range});
      }
    }
    const Instance y = make_instance(out, device);
    record_reduce(partial, device, leaves, {0, in_.tiles->n_cuts}, nonempty, y.buffer, &op, residual);
  }
  if (out != node.outputs[0]) {
    send_copies(out);
  }
}

}  // namespace tessera

#include "program/lower/locate.h"

#include <bit>

namespace tessera {
namespace {

constexpr DeviceMask kEverywhere = ~DeviceMask{0};

DeviceMask lowest(DeviceMask set) {
  return set & (~set + 1);
}

// One pass forward for where values arise, one backward for where they are wanted.
class Locator {
 public:
  Locator(const Program& program, const TileSet& tiles, const Placement& placement, bool with_embeddings)
      : program_(program), tiles_(tiles), placement_(placement), with_embeddings_(with_embeddings) {
    arises_.assign(program.values.size(), kEverywhere);
    pinned_.assign(program.values.size(), false);
    wanted_.assign(program.values.size(), 0);
    result_.values.resize(program.values.size());
  }

  Locations run() {
    for (const Node& node : program_.nodes) {
      find_origin(node);
    }
    for (auto it = program_.nodes.rbegin(); it != program_.nodes.rend(); ++it) {
      settle(*it);
    }
    return std::move(result_);
  }

 private:
  const ValueInfo& value(ValueId id) const { return program_.values[static_cast<size_t>(id)]; }
  DeviceMask axis_devices(const ValueInfo& v) const { return devices_of_axis(tiles_, placement_, v.axis, v.layer); }

  void find_origin(const Node& node) {
    if (node.outputs.empty() || value(node.outputs[0]).kind != ValueKind::kWhole) {
      return;
    }
    const auto out = static_cast<size_t>(node.outputs[0]);
    if (std::holds_alternative<ReduceNode>(node.op)) {
      arises_[out] = axis_devices(value(node.inputs[0]));
      pinned_[out] = true;
    } else if (std::holds_alternative<AddNode>(node.op)) {
      const auto a = static_cast<size_t>(node.inputs[0]);
      const auto b = static_cast<size_t>(node.inputs[1]);
      const size_t later = value(node.inputs[0]).producer > value(node.inputs[1]).producer ? a : b;
      const size_t earlier = later == a ? b : a;
      arises_[out] = arises_[later] == kEverywhere ? arises_[earlier] : arises_[later];
      pinned_[out] = arises_[out] != kEverywhere;
    } else if (const auto* route = std::get_if<RouteNode>(&node.op)) {
      // A discrete decision: made once, on a device that has its input anyway.
      const DeviceMask near = arises_[static_cast<size_t>(node.inputs[0])];
      arises_[out] =
          lowest(near != kEverywhere ? near : devices_of_axis(tiles_, placement_, CutAxis::kExpert, route->layer));
      pinned_[out] = true;
    } else if (!node.inputs.empty()) {
      arises_[out] = arises_[static_cast<size_t>(node.inputs[0])];
    }
  }

  void want(ValueId id, DeviceMask devices) {
    if (value(id).kind == ValueKind::kWhole) {
      wanted_[static_cast<size_t>(id)] |= devices;
    }
  }

  void settle(const Node& node) {
    DeviceMask runs = 0;
    if (!node.outputs.empty() && value(node.outputs[0]).kind == ValueKind::kWhole) {
      runs = settle_whole(node.outputs[0]);
    } else if (!node.outputs.empty()) {
      runs = axis_devices(value(node.outputs[0]));
    } else if (with_embeddings_ && std::holds_alternative<EmbeddingsNode>(node.op)) {
      runs = lowest(arises_[static_cast<size_t>(node.inputs[0])]);
    }
    for (const ValueId input : node.inputs) {
      want(input, runs);
    }
  }

  DeviceMask settle_whole(ValueId id) {
    const auto i = static_cast<size_t>(id);
    ValueLocation& location = result_.values[i];
    location.runs = wanted_[i];
    if (pinned_[i]) {
      DeviceMask inside = wanted_[i] & arises_[i];
      if (inside == 0 && wanted_[i] != 0) {
        inside = lowest(arises_[i]);
      }
      location.runs = inside;
      const int from = std::countr_zero(inside);
      for (DeviceMask rest = wanted_[i] & ~inside; rest != 0; rest &= rest - 1) {
        location.copies.push_back({from, std::countr_zero(rest)});
      }
    }
    return location.runs;
  }

  const Program& program_;
  const TileSet& tiles_;
  const Placement& placement_;
  bool with_embeddings_;
  std::vector<DeviceMask> arises_;  // devices on which a value can be computed without copying its inputs
  std::vector<bool> pinned_;        // computed only where it arises
  std::vector<DeviceMask> wanted_;
  Locations result_;
};

}  // namespace

CutMask held_cuts(const TileSet& tiles, const Placement& placement, CutAxis axis, int32_t layer, int device) {
  CutMask mask = 0;
  for (int c = 0; c < tiles.n_cuts; ++c) {
    const int tile = tiles.anchor(axis, layer, c);
    if (tile >= 0 && placement.works_on(static_cast<size_t>(tile)) == device) {
      mask |= CutMask{1} << c;
    }
  }
  return mask;
}

CutMask nonempty_cuts(const TileSet& tiles, CutAxis axis, int32_t layer) {
  CutMask mask = 0;
  for (int c = 0; c < tiles.n_cuts; ++c) {
    mask |= tiles.cuts(axis, layer).empty(c) ? 0 : CutMask{1} << c;
  }
  return mask;
}

DeviceMask devices_of_axis(const TileSet& tiles, const Placement& placement, CutAxis axis, int32_t layer) {
  DeviceMask devices = 0;
  for (int c = 0; c < tiles.n_cuts; ++c) {
    const int tile = tiles.anchor(axis, layer, c);
    if (tile >= 0) {
      devices |= DeviceMask{1} << placement.works_on(static_cast<size_t>(tile));
    }
  }
  return devices;
}

Locations locate(const Program& program, const TileSet& tiles, const Placement& placement, bool with_embeddings) {
  return Locator(program, tiles, placement, with_embeddings).run();
}

}  // namespace tessera

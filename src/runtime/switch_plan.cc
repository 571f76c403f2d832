#include "runtime/switch_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/units.h"
#include "runtime/memory_plan.h"
#include "runtime/outline.h"
#include "runtime/placement_switch.h"

namespace tessera {
namespace {

/// Where everything lies under one placement.
struct Map {
  Placement placement;
  std::vector<uint64_t> weight_bytes;  // by device
  Layout kv;
  Layout rec;
};

class SwitchPlanner {
 public:
  SwitchPlanner(const SwitchRequest& request, const Log& log, ModelState& model)
      : request_(request), log_(log), m_(model) {}

  Result<SwitchPlan> run() {
    ASSIGN_OR_RETURN(const SplitMode from_mode, parse_split_mode(request_.model.split_mode, "--from"));
    ASSIGN_OR_RETURN(const SplitMode to_mode, parse_split_mode(request_.to_mode, "--to"));
    const Shares from_shares{request_.model.tensor_split};
    const Shares to_shares{request_.to_split};
    ASSIGN_OR_RETURN(plan_.n_cuts, cuts_of(m_, request_.model, from_shares));
    TRY(check_shares(to_shares, m_.n_devices(), "--to-tensor-split"));
    TRY(cut_model(m_, plan_.n_cuts));
    report_shares(m_, from_mode, from_shares, log_);
    report_shares(m_, to_mode, to_shares, log_);
    ASSIGN_OR_RETURN(context_, with_context_size(m_, request_.model.context));
    ASSIGN_OR_RETURN(sizes_, context_sizes(m_, context_));
    TRY(count_used());
    TRY(fix_homes(m_, request_.model));
    const PlacementTarget target = m_.placement_target();
    plan_.devices.resize(m_.devices.size());

    const Placement from = make_placement(m_.tiles, from_mode, from_shares, target, 1);
    const Placement to = make_placement(m_.tiles, to_mode, to_shares, target, 2);
    TRY(count_needs(from, &SwitchDevice::from));
    TRY(count_needs(to, &SwitchDevice::to));
    const Map before = map_of(from);
    Map after = map_of(keep_places(m_.tiles, to, from, target));
    after.kv = keep_offsets(after.kv, before.kv, whole_units_of(kv_tiles_));
    after.rec = keep_offsets(after.rec, before.rec, whole_units_of(rec_tiles_));
    lay_out(before, after);
    add_weights(before, after);
    add_states("kv", kv_used_, before.kv, after.kv, kv_begin_);
    add_states("rec", rec_used_, before.rec, after.rec, rec_begin_);
    TRY(plan_to_fit());
    add_replicas(before.placement, after.placement);
    TRY(count_peaks());
    plan_.links = link_use(plan_.plan);
    plan_.seconds =
        predict_seconds(plan_.plan, [&](int32_t a, int32_t b) { return a == b ? request_.local : request_.link; });
    return std::move(plan_);
  }

 private:
  /// Bytes of every cache tile that tokens fill.
  Status count_used() {
    if (request_.n_kv_tokens < 0 || request_.n_kv_tokens > context_.n_ctx) {
      return {ErrorCode::kInvalidArgument, fmt::format("--kv-tokens is {}; the context of --ctx-size holds 0 to {}",
                                                       request_.n_kv_tokens, context_.n_ctx)};
    }
    kv_tiles_ = kv_tile_bytes(m_, context_, sizes_);
    rec_tiles_ = rec_slot_bytes(m_);
    for (uint64_t& bytes : rec_tiles_) {
      bytes *= static_cast<uint64_t>(context_.n_seq_max);
    }
    kv_used_.assign(kv_tiles_.size(), 0);
    rec_used_.assign(rec_tiles_.size(), 0);
    if (request_.n_kv_tokens > 0) {
      ContextOptions filled = context_;
      filled.n_ctx = request_.n_kv_tokens;
      ASSIGN_OR_RETURN(const ContextSizes sizes, context_sizes(m_, filled));
      kv_used_ = kv_tile_bytes(m_, filled, sizes);
      rec_used_ = rec_tiles_;
    }
    return {};
  }

  Status count_needs(const Placement& placement, DeviceNeed SwitchDevice::* member) {
    place_model(m_, placement);
    ASSIGN_OR_RETURN(const std::vector<DeviceNeed> needs, memory_needs(m_, context_, sizes_));
    for (size_t d = 0; d < needs.size(); ++d) {
      plan_.devices[d].*member = needs[d];
    }
    return check_fit(m_, needs);
  }

  Map map_of(Placement placement) {
    place_model(m_, std::move(placement));
    Map map{m_.placement, {}, layout_state(m_, m_.placement, kv_tiles_), layout_state(m_, m_.placement, rec_tiles_)};
    for (const DeviceWeights& weights : m_.weights) {
      map.weight_bytes.push_back(weights.bytes);
    }
    return map;
  }

  [[nodiscard]] uint64_t unit(size_t d) const { return m_.devices[d].info().unit_bytes; }
  [[nodiscard]] std::function<uint64_t(size_t state, int device)> whole_units_of(const std::vector<uint64_t>& b) const {
    return [this, &b](size_t state, int device) { return round_up(b[state], unit(static_cast<size_t>(device))); };
  }

  /// One line of positions per device: weights, KV cache, recurrent state, each as large as the larger map needs it.
  void lay_out(const Map& before, const Map& after) {
    for (size_t d = 0; d < m_.devices.size(); ++d) {
      kv_begin_.push_back(round_up(std::max(before.weight_bytes[d], after.weight_bytes[d]), unit(d)));
      rec_begin_.push_back(kv_begin_[d] + std::max(before.kv.region_bytes[d], after.kv.region_bytes[d]));
      end_.push_back(rec_begin_[d] + std::max(before.rec.region_bytes[d], after.rec.region_bytes[d]));
      transition_.pools.push_back({unit(d), UINT64_MAX});  // count_peaks() holds them against the budgets
    }
  }

  void add(const SwitchExtent& what, uint64_t bytes, const PoolPosition& from, const PoolPosition& to) {
    plan_.extents.push_back(what);
    transition_.extents.push_back({bytes, from, to});
  }

  void add_weights(const Map& before, const Map& after) {
    const auto place_of = [&](const Placement& placement, size_t t) {
      const int32_t home = placement.home[t];
      const uint64_t tiles_offset = round_up(m_.replicas.bytes, unit(static_cast<size_t>(home)));
      return PoolPosition{home, tiles_offset + placement.offset[t]};
    };
    for (size_t t = 0; t < m_.tiles.tiles.size(); ++t) {
      const Tile& tile = m_.tiles.tiles[t];
      const PoolPosition from = place_of(before.placement, t);
      const uint64_t bytes = m_.weights[static_cast<size_t>(from.device)].tile_layouts[t].bytes;
      add({tile_kind_name(tile.kind), tile.layer, tile.cut, tile.expert}, bytes, from, place_of(after.placement, t));
    }
  }

  void add_replicas(const Placement& before, const Placement& after) {
    const auto extent = static_cast<int32_t>(plan_.extents.size());
    plan_.extents.push_back({tile_kind_name(TileKind::kReplica)});
    for (Move& move : replica_moves(before, after, m_.replicas.bytes)) {
      move.extent = extent;
      plan_.plan.moves.push_back(std::move(move));
    }
  }

  void add_states(std::string_view kind, const std::vector<uint64_t>& used, const Layout& before, const Layout& after,
                  const std::vector<uint64_t>& begin) {
    const auto n_cuts = static_cast<size_t>(m_.tiles.n_cuts);
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i] == 0) {
        continue;
      }
      const auto layer = static_cast<int32_t>(i / n_cuts);
      const auto cut = static_cast<int32_t>(i % n_cuts);
      const auto place_of = [&](const Layout& layout) {
        return PoolPosition{layout.home[i], begin[static_cast<size_t>(layout.home[i])] + layout.offset[i]};
      };
      add({kind, layer, cut}, used[i], place_of(before), place_of(after));
    }
  }

  Status plan_to_fit() {
    ASSIGN_OR_RETURN(
        plan_.plan,
        plan_with_staging(std::move(transition_), request_.staging_bytes, [this](size_t d) -> std::optional<uint64_t> {
          const uint64_t budget = m_.devices[d].budget_bytes();
          const uint64_t needed = without_staging(d);
          return needed <= budget ? std::optional(budget - needed) : std::nullopt;
        }));
    return {};
  }

  [[nodiscard]] uint64_t without_staging(size_t d) const {
    return end_[d] + std::max(plan_.devices[d].from.scratch_bytes, plan_.devices[d].to.scratch_bytes);
  }

  Status count_peaks() {
    std::string lacking;
    for (size_t d = 0; d < plan_.devices.size(); ++d) {
      SwitchDevice& device = plan_.devices[d];
      device.name = m_.devices[d].info().name;
      device.budget_bytes = m_.devices[d].budget_bytes();
      device.staging_bytes = plan_.plan.peaks[d].staging;
      device.peak_bytes = without_staging(d) + device.staging_bytes;
      if (device.peak_bytes > device.budget_bytes) {
        lacking +=
            fmt::format("{}{} needs {:.1f} MiB ({:.1f} under {}, {:.1f} under {}, {:.1f} staging) and has {:.1f}",
                        lacking.empty() ? "" : "; ", device.name, mib(device.peak_bytes), mib(device.from.total()),
                        request_.model.split_mode, mib(device.to.total()), request_.to_mode, mib(device.staging_bytes),
                        mib(device.budget_bytes));
      }
    }
    return lacking.empty() ? Status()
                           : Status(ErrorCode::kDoesNotFit,
                                    fmt::format("both placements fit, but the switch from {} to {} does not: {}. Lower "
                                                "--ctx-size or --transition-staging, or raise --device-memory",
                                                request_.model.split_mode, request_.to_mode, lacking));
  }

  const SwitchRequest& request_;
  const Log& log_;
  ModelState& m_;
  ContextOptions context_;
  ContextSizes sizes_;
  std::vector<uint64_t> kv_tiles_, kv_used_;          // by layer and cut
  std::vector<uint64_t> rec_tiles_, rec_used_;        // the same
  std::vector<uint64_t> kv_begin_, rec_begin_, end_;  // by device
  TransitionRequest transition_;
  SwitchPlan plan_;
};

}  // namespace

Result<SwitchPlan> plan_switch(const SwitchRequest& request, const Log& log) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelState> model, open_outline(request.model));
  return SwitchPlanner(request, log, *model).run();
}

}  // namespace tessera

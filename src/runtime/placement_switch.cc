#include "runtime/placement_switch.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <iterator>
#include <new>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/units.h"
#include "device/memory_budget.h"
#include "runtime/context_memory.h"
#include "transition/executor.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// Largest copy. Tiles of some MiB become several chains of copies that wait for one another, so that every link always
// has one to run; what is opened through staging, and the new pages that this costs, stay few.
constexpr uint64_t kPieceBytes = 1 << 20;
// Pieces in staging at once, at most. Either of two queues may run a copy, so a few chains keep both busy; staging is
// new memory, and each of its pages costs a fault.
constexpr uint64_t kStagedPieces = 8;
constexpr const char* kCustom = "custom";  // the split mode of a placement that no generator made

class PlacementSwitch {
 public:
  /// `next` is what `request` means, with any offsets.
  PlacementSwitch(ModelState& model, Placement next, PlacementRequest request, const TransitionOptions& options,
                  std::optional<Clock::time_point> deadline)
      : model_(model), next_(std::move(next)), request_(std::move(request)), options_(options), deadline_(deadline) {}

  Result<TransitionReport> run() {
    const auto start = Clock::now();
    report_.from = model_.request.split_mode;
    report_.to = request_.split_mode;
    report_.placement_version = next_.version;
    if (request_.homes.empty()) {
      report_.shares = rounded_shares(model_.tiles, next_.made_by, {request_.tensor_split}, model_.n_devices());
    }
    Clock::time_point reserved;
    Status status;
    try {
      status = reserve();
      reserved = Clock::now();
      status = status.ok() ? move() : status;
    } catch (const std::bad_alloc&) {  // of the host: nothing has moved
      give_back();
      throw;
    }
    const auto moved = Clock::now();
    if (!status.ok()) {
      give_back();
      return Status(status.code(), fmt::format("{}; the {} placement {}", status.message(), report_.from,
                                               model_.lost.ok() ? "holds" : "is gone: load the model again"));
    }
    commit();
    const auto committed = Clock::now();
    trim();
    const auto trimmed = Clock::now();
    report_.reserve_ms = ms_between(start, reserved);
    report_.move_ms = ms_between(reserved, moved);
    report_.commit_ms = ms_between(moved, committed);
    report_.trim_ms = ms_between(committed, trimmed);
    report_.total_ms = ms_between(start, trimmed);
    return std::move(report_);
  }

 private:
  // All that can fail for lack of something, or because a device failed earlier.
  Status reserve() {
    TRY(model_.lost);
    TRY(settle());
    TRY(lower_contexts());
    collect_changes();
    collect_extents();
    TRY(plan_to_fit());
    TRY(grow());
    make_work();
    return {};
  }

  // Every call leaves its queues empty but for copies of recurrent state; those end here.
  Status settle() {
    for (const auto& device : model_.devices.devices) {
      const Status status = device->compute_queue().synchronize();
      if (!status.ok()) {
        model_.lost =
            Status(ErrorCode::kDeviceLost, fmt::format("device {} failed: {}", device->info().name, status.message()));
        return model_.lost;
      }
    }
    return {};
  }

  Status lower_contexts() {
    next_ = keep_places(model_.tiles, next_, model_.placement, model_.placement_target());
    for (const ContextMemory* context : model_.contexts) {
      ASSIGN_OR_RETURN(ContextMemory::Next next, context->lower_for(next_));
      contexts_.push_back(std::move(next));
    }
    return {};
  }

  void collect_changes() {
    for (size_t d = 0; d < model_.weights.size(); ++d) {
      const DeviceWeights& weights = model_.weights[d];
      changes_.push_back({d, weights.range.get(), weights.bytes, model_.weight_bytes(next_, d)});
    }
    for (size_t c = 0; c < contexts_.size(); ++c) {
      model_.contexts[c]->add_changes(contexts_[c], changes_);
    }
  }

  // Pools 0 .. n_devices - 1 are the devices' weights.
  void collect_extents() {
    for (size_t d = 0; d < model_.weights.size(); ++d) {
      planned_.pools.push_back({d, model_.weights[d].range->base()});
    }
    const Placement& now = model_.placement;
    for (size_t t = 0; t < model_.tiles.tiles.size(); ++t) {
      const DeviceWeights& from = model_.weights[static_cast<size_t>(now.home[t])];
      const DeviceWeights& to = model_.weights[static_cast<size_t>(next_.home[t])];
      CHECK(from.kernels ==
            to.kernels);  // all devices of a model are of one class: tiles are the same bytes everywhere
      planned_.extents.push_back({from.tile_layouts[t].bytes,
                                  {now.home[t], from.tiles_offset + now.offset[t]},
                                  {next_.home[t], to.tiles_offset + next_.offset[t]}});
    }
    for (size_t c = 0; c < contexts_.size(); ++c) {
      model_.contexts[c]->add_extents(contexts_[c], planned_);
    }
  }

  Status plan_to_fit() {
    TransitionRequest request;
    request.extents = planned_.extents;
    for (size_t p = 0; p < planned_.pools.size(); ++p) {
      const auto device = planned_.pools[p].device;
      const int32_t staging = p < model_.devices.size() ? -1 : static_cast<int32_t>(device);
      request.pools.push_back({model_.devices[device].info().unit_bytes, UINT64_MAX, staging});
    }
    ASSIGN_OR_RETURN(plan_, plan_with_staging(std::move(request), options_.staging_bytes,
                                              [this](size_t d) -> std::optional<uint64_t> {
                                                const Device& device = model_.devices[d];
                                                const uint64_t needed = device.used_bytes() + growth(d);
                                                const uint64_t budget = device.budget_bytes();
                                                return needed <= budget ? std::optional(budget - needed) : std::nullopt;
                                              }));
    return check_room();
  }

  // What a device's ranges need beyond what they hold.
  [[nodiscard]] uint64_t growth(size_t device) const {
    uint64_t bytes = 0;
    for (const RangeChange& change : changes_) {
      bytes += change.device == device && change.after > change.before ? change.after - change.before : 0;
    }
    return bytes;
  }

  [[nodiscard]] Status check_room() const {
    std::string lacking;
    for (size_t d = 0; d < model_.devices.size(); ++d) {
      const Device& device = model_.devices[d];
      const uint64_t staging = plan_.peaks[d].staging;
      const uint64_t needed = growth(d) + staging;
      const uint64_t free = device.budget_bytes() - std::min(device.used_bytes(), device.budget_bytes());
      if (needed > free) {
        lacking += fmt::format(
            "{}device {} lacks {} for the {} placement (needs {} more, {} of them staging, and has {} "
            "free of its budget of {})",
            lacking.empty() ? "" : "; ", device.info().name, mib_text(needed - free), report_.to, mib_text(needed),
            mib_text(staging), mib_text(free), mib_text(device.budget_bytes()));
      }
    }
    return lacking.empty() ? Status() : Status(ErrorCode::kDoesNotFit, std::move(lacking));
  }

  Status grow() {
    for (const RangeChange& change : changes_) {
      if (change.after > change.before) {
        TRY(change.range->resize(change.after));
      }
    }
    for (size_t d = 0; d < model_.devices.size(); ++d) {
      const uint64_t bytes = plan_.peaks[d].staging;
      ASSIGN_OR_RETURN(auto range, model_.devices[d].reserve(std::max<uint64_t>(bytes, 1), "staging"));
      TRY(range->resize(bytes));
      staging_.push_back(std::move(range));
    }
    for (const auto& device : model_.devices.devices) {
      report_.peak_bytes.push_back(device->used_bytes());
    }
    return {};
  }

  void make_work() {
    for (const PlannedExtents::Pool& pool : planned_.pools) {
      work_.pools.push_back({static_cast<int32_t>(pool.device), pool.base});
    }
    for (size_t d = 0; d < model_.devices.size(); ++d) {
      work_.devices.push_back({&model_.devices[d], staging_[d]->base()});
    }
    work_.moves = std::move(plan_.moves);
    std::ranges::move(replica_moves(model_.placement, next_, model_.replicas.bytes), std::back_inserter(work_.moves));
    const TransitionBytes bytes = count_bytes(work_);
    report_.moved_bytes = bytes.moved;
    report_.local_bytes = bytes.local;
    report_.n_moves = static_cast<int64_t>(work_.moves.size());
  }

  Status move() {
    struct Flag {
      bool& switching;
      explicit Flag(bool& flag) : switching(flag) { switching = true; }
      ~Flag() { switching = false; }
    } const flag(model_.switching);
    const Status status = run_transition(work_, {deadline_, options_.progress});
    if (status.code() == ErrorCode::kDeviceLost) {
      model_.lost = Status(ErrorCode::kDeviceLost, fmt::format("a switch to the {} placement failed: {}. What the "
                                                               "devices held is gone; load the model again",
                                                               report_.to, status.message()));
    }
    return status;
  }

  void give_back() {
    for (const RangeChange& change : changes_) {
      if (change.range->committed_bytes() > change.before) {
        CHECK(change.range->resize(change.before).ok());
      }
    }
    staging_.clear();
  }

  void commit() noexcept {
    for (size_t c = 0; c < contexts_.size(); ++c) {
      model_.contexts[c]->take(std::move(contexts_[c]));
    }
    for (size_t d = 0; d < model_.weights.size(); ++d) {
      model_.weights[d].bytes = model_.weight_bytes(next_, d);
    }
    model_.placement = std::move(next_);
    model_.request = std::move(request_);
  }

  void trim() {
    for (const RangeChange& change : changes_) {
      if (change.after < change.before) {
        CHECK(change.range->resize(change.after).ok());
      }
    }
    staging_.clear();
  }

  ModelState& model_;
  Placement next_;
  PlacementRequest request_;
  const TransitionOptions& options_;
  const std::optional<Clock::time_point> deadline_;
  std::vector<ContextMemory::Next> contexts_;  // as model_.contexts
  std::vector<RangeChange> changes_;
  PlannedExtents planned_;
  Plan plan_;
  std::vector<std::unique_ptr<MemoryRange>> staging_;  // by device
  TransitionWork work_;
  TransitionReport report_;
};

}  // namespace

Result<SplitMode> parse_split_mode(const std::string& name, std::string_view flag) {
  for (const SplitMode mode : {SplitMode::kNone, SplitMode::kLayer, SplitMode::kTensor}) {
    if (name == split_mode_name(mode)) {
      return mode;
    }
  }
  return Status(ErrorCode::kInvalidArgument, fmt::format("{} {}: known are none, layer, tensor", flag, name));
}

Result<Placement> requested_placement(const ModelState& model, const PlacementRequest& request, uint64_t version) {
  if (request.homes.empty()) {
    ASSIGN_OR_RETURN(const SplitMode mode, parse_split_mode(request.split_mode));
    const Shares shares{request.tensor_split};
    TRY(check_shares(shares, model.n_devices()));
    return make_placement(model.tiles, mode, shares, model.placement_target(), version);
  }
  const bool known =
      std::ranges::all_of(request.homes, [&](int32_t home) { return home >= 0 && home < model.n_devices(); });
  if (request.split_mode != kCustom || !request.tensor_split.empty() || !known ||
      request.homes.size() != model.tiles.tiles.size()) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("homes belong to the split mode {}, one for each of {} tiles, on devices 0 to {}; there "
                              "are {} of them, the split mode is {}, and there are {} shares",
                              kCustom, model.tiles.tiles.size(), model.n_devices() - 1, request.homes.size(),
                              request.split_mode, request.tensor_split.size()));
  }
  Placement next = model.placement;
  next.version = version;
  next.home = request.homes;
  lay_out(model.tiles, model.placement_target(), next);
  return next;
}

Result<Plan> plan_with_staging(TransitionRequest request, uint64_t staging_bytes,
                               const std::function<std::optional<uint64_t>(size_t pool)>& room) {
  const auto plan_with = [&](uint64_t bytes) {
    request.staging_bytes = bytes;
    request.piece_bytes = std::min(kPieceBytes, bytes);
    return plan_transition(request);
  };
  const uint64_t most = std::min(staging_bytes, kStagedPieces * kPieceBytes);
  ASSIGN_OR_RETURN(Plan plan, plan_with(most));
  uint64_t least_room = most;
  uint64_t unit = 0;
  for (size_t p = 0; p < request.pools.size(); ++p) {
    unit = std::max(unit, request.pools[p].unit_bytes);
    if (plan.peaks[p].staging > 0) {
      least_room = std::min(least_room, room(p).value_or(most));
    }
  }
  return least_room < most && least_room >= unit ? plan_with(least_room / unit * unit) : plan;
}

std::vector<Move> replica_moves(const Placement& before, const Placement& after, uint64_t replica_bytes) {
  const auto n_devices = static_cast<int32_t>(before.tile_region_bytes.size());
  int32_t holder = 0;
  while (holder < n_devices && !before.uses(holder)) {
    ++holder;
  }
  std::vector<Move> moves;
  for (int32_t d = 0; d < n_devices; ++d) {
    for (uint64_t at = 0; after.uses(d) && !before.uses(d) && at < replica_bytes; at += kPieceBytes) {
      Move move;
      move.extent_offset = at;
      move.bytes = std::min(kPieceBytes, replica_bytes - at);
      move.from = {holder, at};
      move.to = {d, at};
      moves.push_back(std::move(move));
    }
  }
  return moves;
}

Result<TransitionReport> switch_placement(ModelState& model, const PlacementRequest& request,
                                          const TransitionOptions& options) {
  std::optional<Clock::time_point> deadline;
  if (options.deadline_s > 0) {
    constexpr double kLongest = 1e9;  // seconds: beyond it the clock's type overflows
    deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(std::min(options.deadline_s, kLongest)));
  }
  TransitionReport report;
  TRY(model.loop->run_alone(
      [&]() -> Status {
        ASSIGN_OR_RETURN(Placement next, requested_placement(model, request, model.placement.version + 1));
        ASSIGN_OR_RETURN(report, PlacementSwitch(model, std::move(next), request, options, deadline).run());
        return {};
      },
      options.wait, deadline));
  return report;
}

}  // namespace tessera

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
#include "placement/ahead.h"
#include "runtime/context_memory.h"
#include "runtime/copy_ahead.h"
#include "transition/executor.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// Pieces in staging at once, at most. Either of two queues may run a copy, so a few chains keep both busy; staging is
// new memory, and each of its pages costs a fault.
constexpr uint64_t kStagedPieces = 8;
constexpr const char* kCustom = "custom";  // the split mode of a placement that no generator made

class PlacementSwitch {
 public:
  /// `next` is what `request` means, with the offsets that it is to have. ahead: what of it is copied; null: nothing.
  PlacementSwitch(ModelState& model, Placement next, PlacementRequest request, const TransitionOptions& options,
                  std::optional<Clock::time_point> deadline, CopyAhead* ahead)
      : model_(model),
        next_(std::move(next)),
        request_(std::move(request)),
        options_(options),
        deadline_(deadline),
        ahead_(ahead) {}
  // What was copied ahead is used, or dropped before anything else has its turn: the next one may resize the ranges.
  ~PlacementSwitch() {
    if (ahead_ != nullptr) {
      ahead_->drop();
    }
  }
  PlacementSwitch(const PlacementSwitch&) = delete;
  PlacementSwitch& operator=(const PlacementSwitch&) = delete;

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

  // What a device's ranges need beyond what they hold: where tiles were copied ahead, that is more than `before`.
  [[nodiscard]] uint64_t growth(size_t device) const {
    uint64_t bytes = 0;
    for (const RangeChange& change : changes_) {
      const uint64_t held = change.range->committed_bytes();
      bytes += change.device == device && change.after > held ? change.after - held : 0;
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
    for (size_t d = model_.staging.size(); d < model_.devices.size(); ++d) {
      ASSIGN_OR_RETURN(auto range, model_.devices[d].reserve(kStagedPieces * kSwitchPieceBytes, "staging"));
      model_.staging.push_back(std::move(range));
    }
    for (size_t d = 0; d < model_.devices.size(); ++d) {
      TRY(model_.staging[d]->resize(plan_.peaks[d].staging));
    }
    for (const auto& device : model_.devices.devices) {
      report_.peak_bytes.push_back(device->used_bytes() + device->spare_bytes());
    }
    return {};
  }

  void make_work() {
    for (const PlannedExtents::Pool& pool : planned_.pools) {
      work_.pools.push_back({static_cast<int32_t>(pool.device), pool.base});
    }
    for (size_t d = 0; d < model_.devices.size(); ++d) {
      work_.devices.push_back({&model_.devices[d], model_.staging[d]->base()});
    }
    work_.moves = std::move(plan_.moves);
    if (ahead_ != nullptr) {
      for (const Move& move : work_.moves) {
        work_.arrived.push_back(is_copied(move));
      }
      report_.ahead_bytes = ahead_->bytes().moved;
    }
    std::ranges::move(replica_moves(model_.placement, next_, model_.replicas.bytes), std::back_inserter(work_.moves));
    const TransitionBytes bytes = count_bytes(work_);
    report_.moved_bytes = bytes.moved;
    report_.local_bytes = bytes.local;
    report_.n_moves = static_cast<int64_t>(work_.moves.size());
    if (ahead_ != nullptr) {
      work_.arrived.resize(work_.moves.size(), false);
    }
  }

  // The tiles are the first extents. What is copied went to places that were free, so nothing comes before it.
  [[nodiscard]] bool is_copied(const Move& move) const {
    const auto extent = static_cast<size_t>(move.extent);
    const bool copied = extent < ahead_->tiles().size() && ahead_->tiles()[extent];
    CHECK(!copied || (move.after.empty() && !move.from_staging && !move.to_staging));
    return copied;
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
    end_staging();
  }

  // As much as a switch may take for itself stays at hand for the next one.
  void end_staging() {
    for (const auto& range : model_.staging) {
      range->shrink(0, options_.staging_bytes);
    }
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
    model_.spread = false;
    if (ahead_ != nullptr) {
      ahead_->keep();
    }
  }

  void trim() {
    end_staging();  // first: the next switch needs it for certain
    for (const RangeChange& change : changes_) {
      if (change.after < change.before) {
        change.range->shrink(change.after, options_.staging_bytes);
      }
    }
  }

  ModelState& model_;
  Placement next_;
  PlacementRequest request_;
  const TransitionOptions& options_;
  const std::optional<Clock::time_point> deadline_;
  CopyAhead* const ahead_;
  std::vector<ContextMemory::Next> contexts_;  // as model_.contexts
  std::vector<RangeChange> changes_;
  PlannedExtents planned_;
  Plan plan_;
  TransitionWork work_;
  TransitionReport report_;
};

/// Where `wanted` has its tiles so that few bytes move, and holes end.
Placement kept_places(const ModelState& model, const Placement& wanted) {
  const PlacementTarget target = model.placement_target();
  return model.spread ? with_layout(wanted, close_offsets(layout_of(wanted), layout_of(model.placement),
                                                          whole_tile_bytes(model.tiles, target)))
                      : keep_places(model.tiles, wanted, model.placement, target);
}

/// Closes the holes that tiles which were copied ahead left behind. ahead: which of them are in these holes already;
/// null: none. Nothing where there are no holes. Errors: as a switch; then they stay.
Result<TransitionReport> close_holes(ModelState& model, CopyAhead* ahead) {
  if (!model.spread) {
    return TransitionReport();
  }
  const bool whole = ahead != nullptr && ahead->is_whole();
  ASSIGN_OR_RETURN(const Placement wanted, requested_placement(model, model.request, model.placement.version));
  TransitionOptions options;
  options.staging_bytes = model.staging_bytes;
  return PlacementSwitch(model, whole ? ahead->next() : kept_places(model, wanted), model.request, options,
                         std::nullopt, whole ? ahead : nullptr)
      .run();
}

/// One call of set_placement(), over its turns on the loop thread.
class SwitchCall {
 public:
  SwitchCall(ModelState& model, const PlacementRequest& request, const TransitionOptions& options,
             std::optional<Clock::time_point> deadline)
      : model_(model), request_(request), options_(options), deadline_(deadline) {
    if (options.progress) {
      options_.progress = [this, &options](double part) {
        fraction_ = begin_ + (end_ - begin_) * part;
        return options.progress(fraction_);
      };
    }
  }
  ~SwitchCall() {
    if (ahead_ != nullptr) {
      ahead_->drop();
    }
  }
  SwitchCall(const SwitchCall&) = delete;
  SwitchCall& operator=(const SwitchCall&) = delete;

  Result<TransitionReport> run() {
    const auto start = Clock::now();
    const bool copies = options_.ahead_bytes > 0 && options_.wait;
    if (copies) {
      TRY(copy_ahead());
    }
    const auto copied = Clock::now();
    TRY(turn([&] { return switch_over(); }, options_.wait, deadline_));
    if (copies) {
      report_.ahead_ms = ms_between(start, copied);
    }
    if (closes_) {
      const auto switched = Clock::now();
      TRY(finish());
      report_.close_ms = ms_between(switched, Clock::now());
    }
    report_.stall_ms = stall_ms_;
    return std::move(report_);
  }

 private:
  Status turn(const std::function<Status()>& fn, bool wait, std::optional<Clock::time_point> deadline) {
    return model_.loop->run_alone(
        [&] {
          const auto start = Clock::now();
          Status status = fn();
          stall_ms_ += ms_between(start, Clock::now());
          return status;
        },
        wait, deadline);
  }

  // Errors: the caller's wish to stop. Whatever else comes between, the switch goes on without copies.
  Status copy_ahead() {
    TRY(turn([&] { return begin_copying(); }, true, deadline_));
    if (ahead_ == nullptr) {
      return {};
    }
    end_ = ahead_->share();
    const Status status = ahead_->run({deadline_, options_.progress});
    end_ = 1;
    if (status.code() != ErrorCode::kCancelled && status.code() != ErrorCode::kDeadlineExceeded) {
      return {};
    }
    return {status.code(), fmt::format("{}; the {} placement holds", status.message(), report_.from)};
  }

  Status begin_copying() {
    end_copying_ahead(model_, true);
    TRY(model_.lost);
    report_.from = model_.request.split_mode;
    ASSIGN_OR_RETURN(const Placement wanted, next_placement());
    try {
      begin(spread_places(wanted));
    } catch (const std::bad_alloc&) {  // then nothing is copied ahead
      ahead_.reset();
    }
    return {};
  }

  [[nodiscard]] Result<Placement> next_placement() const {
    return requested_placement(model_, request_, model_.placement.version + 1);
  }

  void begin(Placement next) {
    ahead_ = CopyAhead::begin(model_, std::move(next));
    model_.ahead = ahead_;
  }

  [[nodiscard]] Placement spread_places(const Placement& wanted) const {
    const PlacementTarget target = model_.placement_target();
    std::vector<uint64_t> room;
    for (size_t d = 0; d < model_.weights.size(); ++d) {
      room.push_back(room_beyond(wanted, d));
    }
    return with_layout(wanted, spread_offsets(layout_of(wanted), layout_of(model_.placement),
                                              whole_tile_bytes(model_.tiles, target), room));
  }

  // Bytes that a device's weights may take beyond both placements.
  [[nodiscard]] uint64_t room_beyond(const Placement& wanted, size_t d) const {
    const DeviceWeights& weights = model_.weights[d];
    const Device& device = model_.devices[d];
    const uint64_t larger = std::max(weights.bytes, model_.weight_bytes(wanted, d));
    const uint64_t needed = device.used_bytes() + (larger - weights.bytes);
    return std::min({options_.ahead_bytes,
                     weights.range->reserved_bytes() - std::min(larger, weights.range->reserved_bytes()),
                     device.budget_bytes() - std::min(needed, device.budget_bytes())});
  }

  // With what is copied, if that still holds; where it does not fit so, without.
  Status switch_over() {
    ASSIGN_OR_RETURN(const Placement wanted, next_placement());
    if (ahead_ != nullptr && ahead_->is_whole()) {
      const Status status = switch_to(ahead_->next(), ahead_.get());
      if (status.code() != ErrorCode::kDoesNotFit && status.code() != ErrorCode::kOutOfMemory) {
        if (status.ok()) {
          begin_closing(wanted);
        }
        return status;
      }
    }
    if (model_.ahead != nullptr) {
      model_.ahead->drop();
    }
    return switch_to(kept_places(model_, wanted), nullptr);
  }

  Status switch_to(Placement next, CopyAhead* ahead) {
    begin_ = fraction_;
    model_.staging_bytes = options_.staging_bytes;
    ASSIGN_OR_RETURN(report_, PlacementSwitch(model_, std::move(next), request_, options_, deadline_, ahead).run());
    return {};
  }

  // Holes are what is more than any switch leaves. The switch is done: what fails from here on leaves them, no more.
  void begin_closing(const Placement& wanted) {
    for (size_t d = 0; d < model_.weights.size(); ++d) {
      const uint64_t bytes = wanted.tile_region_bytes[d];
      model_.spread = model_.spread || model_.placement.tile_region_bytes[d] > bytes + bytes / kWasteParts;
      report_.held_bytes +=
          model_.placement.tile_region_bytes[d] - std::min(model_.placement.tile_region_bytes[d], bytes);
    }
    closes_ = model_.spread;
    report_.held_bytes = closes_ ? report_.held_bytes : 0;
    ahead_.reset();
    try {
      if (closes_) {
        begin(kept_places(model_, wanted));
      }
    } catch (const std::bad_alloc&) {  // then they are closed in one turn
      ahead_.reset();
    }
  }

  // A deadline or a wish to stop leaves the holes to the next switch. Errors: kDeviceLost.
  Status finish() {
    try {
      const auto goes_on = [this](double) { return options_.progress == nullptr || options_.progress(1); };
      const Status copied = ahead_ != nullptr ? ahead_->run({deadline_, goes_on}) : Status();
      if (copied.code() == ErrorCode::kCancelled || copied.code() == ErrorCode::kDeadlineExceeded) {
        return {};
      }
      const Status closed = turn([&] { return end_closing(); }, true, std::nullopt);
      return closed.code() == ErrorCode::kDeviceLost ? closed : Status();
    } catch (const std::bad_alloc&) {  // before the turn: the holes stay
      return {};
    }
  }

  // Where another switch came first, it has closed them. One that only copies yet has tried to, and if it failed they
  // stay until its turn: its copies are not ours to end.
  Status end_closing() {
    const bool is_last = model_.placement.version == report_.placement_version;
    const bool is_ours = model_.ahead == nullptr || model_.ahead == ahead_;
    if (is_last && is_ours) {
      ASSIGN_OR_RETURN(const TransitionReport closed, close_holes(model_, ahead_.get()));
      report_.local_bytes += closed.local_bytes;
      model_.ahead.reset();
    }
    report_.held_bytes = is_last && model_.spread ? report_.held_bytes : 0;
    return {};
  }

  ModelState& model_;
  const PlacementRequest& request_;
  TransitionOptions options_;  // with progress over all parts
  const std::optional<Clock::time_point> deadline_;
  std::shared_ptr<CopyAhead> ahead_;  // before the switch, then before the holes are closed
  TransitionReport report_;
  double stall_ms_ = 0;         // of the loop thread until it returns
  bool closes_ = false;         // the switch left holes
  double begin_ = 0, end_ = 1;  // what the present part is of the whole
  double fraction_ = 0;         // that progress was told last
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
  if (request.homes.empty() && request.split_mode != kCustom) {
    ASSIGN_OR_RETURN(const SplitMode mode, parse_split_mode(request.split_mode));
    const Shares shares{request.tensor_split};
    TRY(check_shares(shares, model.n_devices()));
    return make_placement(model.tiles, mode, shares, model.placement_target(), version);
  }
  if (request.split_mode != kCustom || !request.tensor_split.empty() ||
      request.homes.size() != model.tiles.tiles.size()) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("homes belong to the split mode {}, one for each of {} tiles; there are {} of them, the "
                              "split mode is {}, and there are {} shares",
                              kCustom, model.tiles.tiles.size(), request.homes.size(), request.split_mode,
                              request.tensor_split.size()));
  }
  const auto unknown =
      std::ranges::find_if(request.homes, [&](int32_t home) { return home < 0 || home >= model.n_devices(); });
  if (unknown != request.homes.end()) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("home {} is device {}; the model has devices 0 to {}", unknown - request.homes.begin(),
                              *unknown, model.n_devices() - 1));
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
    request.piece_bytes = std::min(kSwitchPieceBytes, bytes);
    return plan_transition(request);
  };
  const uint64_t most = std::min(staging_bytes, kStagedPieces * kSwitchPieceBytes);
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
    for (uint64_t at = 0; after.uses(d) && !before.uses(d) && at < replica_bytes; at += kSwitchPieceBytes) {
      Move move;
      move.extent_offset = at;
      move.bytes = std::min(kSwitchPieceBytes, replica_bytes - at);
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
  return SwitchCall(model, request, options, deadline).run();
}

void end_copying_ahead(ModelState& model, bool between_calls) {
  if (model.ahead != nullptr) {
    model.ahead->drop();
    model.ahead.reset();
  }
  if (between_calls) {
    try {
      (void)close_holes(model, nullptr);
    } catch (const std::bad_alloc&) {  // before the first move: the holes stay
    }
  }
}

}  // namespace tessera

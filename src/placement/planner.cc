#include "placement/planner.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <queue>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "base/units.h"

namespace tessera {

namespace {

constexpr int32_t kNone = -1;

/// The walk that plan_transition() makes. A *position* is one grid unit of one device's region, numbered over all
/// devices; a *unit* is one grid unit of one extent, numbered over all extents.
class Planner {
 public:
  explicit Planner(const TransitionRequest& request) : request_(request) {}

  Result<Plan> run() {
    TRY(check_sizes());
    TRY(lay_out());
    TRY(fill_maps());
    seed_queue();
    run_queue();
    break_cycles();
    TRY(check_budgets());
    return std::move(plan_);
  }

 private:
  struct UnitRun {
    int32_t extent = 0;
    int64_t begin = 0;  // units of the extent
    int64_t end = 0;
  };
  enum class UnitState : uint8_t { kWaiting, kStaged, kMoved };

  // Before the walk.
  Status check_sizes();
  Status lay_out();
  Status fill_maps();
  Status check_place(int32_t extent, const PoolPosition& place, uint64_t& region) const;
  Status claim(std::vector<int32_t>& owners, int32_t extent, const PoolPosition& place, const char* when);

  // The walk.
  void seed_queue();
  void run_queue();
  void break_cycles();
  [[nodiscard]] bool ready(int32_t extent, int64_t unit) const;
  [[nodiscard]] bool waiting(int32_t extent, int64_t unit) const {
    return state_[first_unit_[static_cast<size_t>(extent)] + static_cast<size_t>(unit)] == UnitState::kWaiting;
  }
  void mark(const UnitRun& run, UnitState state);
  Move move_of(const UnitRun& run) const;
  void wait_for_destination(const UnitRun& run, Move& move) const;
  int32_t add_move(Move move);
  void leave_source(const UnitRun& run, int32_t move);

  Status check_budgets() const;

  /// The pool whose staging a pool uses.
  [[nodiscard]] size_t staging_of(int32_t pool) const {
    const int32_t other = request_.pools[static_cast<size_t>(pool)].staging_pool;
    return static_cast<size_t>(other < 0 ? pool : other);
  }
  [[nodiscard]] const Extent& extent(int32_t e) const { return request_.extents[static_cast<size_t>(e)]; }
  [[nodiscard]] int64_t n_units(int32_t e) const { return static_cast<int64_t>((extent(e).bytes + grid_ - 1) / grid_); }
  /// REQUIRES: the place is on a device.
  [[nodiscard]] size_t position(const PoolPosition& place, int64_t unit) const {
    return first_position_[static_cast<size_t>(place.device)] + place.offset / grid_ + static_cast<size_t>(unit);
  }
  [[nodiscard]] static bool on_device(const PoolPosition& place) { return place.device != PoolPosition::kNowhere; }
  [[nodiscard]] bool moves(int32_t e) const { return extent(e).from != extent(e).to && on_device(extent(e).to); }

  const TransitionRequest& request_;
  Plan plan_;
  uint64_t grid_ = 0;                   // smallest unit of any pool
  int64_t piece_units_ = 0;             // most units per move
  std::vector<size_t> first_position_;  // by device
  std::vector<size_t> first_unit_;      // by extent
  std::vector<int32_t> arriver_;        // by position: extent, kNone
  std::vector<int32_t> emptied_by_;     // by position: move, or one of the next two
  static constexpr int32_t kAlwaysEmpty = -1;
  static constexpr int32_t kOccupied = -2;
  std::vector<UnitState> state_;                    // by unit
  std::vector<std::pair<int32_t, int64_t>> queue_;  // (extent, unit): starts of runs that may be ready
  size_t next_ = 0;                                 // in queue_
};

Status Planner::check_sizes() {
  for (const PoolLimits& pool : request_.pools) {
    if (!std::has_single_bit(pool.unit_bytes)) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("a pool's unit of {} bytes is no power of two", pool.unit_bytes)};
    }
    const ptrdiff_t index = &pool - request_.pools.data();
    if (pool.staging_pool >= index ||
        (pool.staging_pool >= 0 && request_.pools[static_cast<size_t>(pool.staging_pool)].staging_pool >= 0)) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("pool {} has no staging of its own and names pool {} for it", index, pool.staging_pool)};
    }
    grid_ = grid_ == 0 ? pool.unit_bytes : std::min(grid_, pool.unit_bytes);
  }
  const uint64_t piece = std::min(request_.piece_bytes, request_.staging_bytes);
  if (grid_ == 0 || piece < grid_) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("pieces of {} bytes are smaller than one unit of {} bytes; raise --transition-staging", piece,
                        grid_)};
  }
  piece_units_ = static_cast<int64_t>(piece / grid_);
  return {};
}

/// Checks one end of an extent and raises the end of its device's region.
Status Planner::check_place(int32_t e, const PoolPosition& place, uint64_t& region) const {
  const PoolLimits& pool = request_.pools[static_cast<size_t>(place.device)];
  if (place.offset % pool.unit_bytes != 0) {
    return {ErrorCode::kInvalidArgument, fmt::format("extent {} at byte {} of device {} is not on its grid of {} bytes",
                                                     e, place.offset, place.device, pool.unit_bytes)};
  }
  const auto end = checked_add(place.offset, extent(e).bytes);
  const auto aligned = end ? checked_align_up(*end, pool.unit_bytes) : end;
  if (!aligned || *aligned / grid_ > INT32_MAX) {
    return {ErrorCode::kInvalidArgument, fmt::format("extent {} ends beyond what a device can have", e)};
  }
  region = std::max(region, *aligned);
  return {};
}

/// Numbers positions and units.
Status Planner::lay_out() {
  const auto n_devices = static_cast<int32_t>(request_.pools.size());
  plan_.peaks.resize(request_.pools.size());
  size_t units = 0;
  for (int32_t e = 0; e < static_cast<int32_t>(request_.extents.size()); ++e) {
    for (const PoolPosition* place : {&extent(e).from, &extent(e).to}) {
      if (!on_device(*place)) {
        continue;
      }
      if (place->device < 0 || place->device >= n_devices) {
        return {ErrorCode::kInvalidArgument,
                fmt::format("extent {} is on device {} of {}", e, place->device, n_devices)};
      }
      DevicePeak& peak = plan_.peaks[static_cast<size_t>(place->device)];
      TRY(check_place(e, *place, place == &extent(e).from ? peak.region_before : peak.region_after));
    }
    first_unit_.push_back(units);
    units += static_cast<size_t>(n_units(e));
  }
  size_t positions = 0;
  for (const DevicePeak& peak : plan_.peaks) {
    first_position_.push_back(positions);
    positions += peak.bytes() / grid_;
  }
  state_.assign(units, UnitState::kMoved);
  arriver_.assign(positions, kNone);
  emptied_by_.assign(positions, kAlwaysEmpty);
  return {};
}

/// Writes the extent into the positions of a place. Errors: another is there.
Status Planner::claim(std::vector<int32_t>& owners, int32_t e, const PoolPosition& place, const char* when) {
  const int64_t n = n_units(e);
  for (int64_t i = 0; i < n; ++i) {
    int32_t& owner = owners[position(place, i)];
    if (owner != kNone) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("extents {} and {} overlap {} the transition, on device {}", owner, e, when, place.device)};
    }
    owner = e;
  }
  plan_.n_steps += n;
  return {};
}

/// Who arrives where, and which positions are occupied by what moves or stays.
Status Planner::fill_maps() {
  std::vector<int32_t> leaver(arriver_.size(), kNone);
  for (int32_t e = 0; e < static_cast<int32_t>(request_.extents.size()); ++e) {
    ++plan_.n_steps;
    if (on_device(extent(e).from)) {
      TRY(claim(leaver, e, extent(e).from, "before"));
    }
    if (on_device(extent(e).to)) {
      TRY(claim(arriver_, e, extent(e).to, "after"));
    }
    if (moves(e)) {
      mark({e, 0, n_units(e)}, UnitState::kWaiting);
    }
  }
  for (size_t p = 0; p < leaver.size(); ++p) {
    if (leaver[p] != kNone && on_device(extent(leaver[p]).to)) {
      emptied_by_[p] = kOccupied;  // until its unit has moved; a unit that stays is its position's arriver, too
    }
  }
  return {};
}

bool Planner::ready(int32_t e, int64_t unit) const {
  return waiting(e, unit) && emptied_by_[position(extent(e).to, unit)] != kOccupied;
}

void Planner::mark(const UnitRun& run, UnitState state) {
  const auto begin = state_.begin() + static_cast<ptrdiff_t>(first_unit_[static_cast<size_t>(run.extent)]);
  std::fill(begin + run.begin, begin + run.end, state);
}

void Planner::seed_queue() {
  for (int32_t e = 0; e < static_cast<int32_t>(request_.extents.size()); ++e) {
    if (!moves(e)) {
      continue;
    }
    bool before = false;
    for (int64_t i = 0; i < n_units(e); ++i) {
      const bool now = ready(e, i);
      if (now && !before) {
        queue_.emplace_back(e, i);
      }
      before = now;
    }
    plan_.n_steps += n_units(e);
  }
}

/// Moves everything that can move, and what that makes possible.
void Planner::run_queue() {
  for (; next_ < queue_.size(); ++next_) {
    const auto [e, unit] = queue_[next_];
    ++plan_.n_steps;
    UnitRun run = {e, unit, unit};
    while (run.end < n_units(e) && run.end - run.begin < piece_units_ && ready(e, run.end)) {
      ++run.end;
    }
    if (run.begin == run.end) {
      continue;  // moved meanwhile
    }
    if (run.end < n_units(e) && ready(e, run.end)) {
      queue_.emplace_back(e, run.end);
    }
    Move move = move_of(run);
    wait_for_destination(run, move);
    mark(run, UnitState::kMoved);
    leave_source(run, add_move(std::move(move)));
  }
}

/// The positions that the run leaves are empty from now on; those who arrive there may move.
void Planner::leave_source(const UnitRun& run, int32_t move) {
  if (!on_device(extent(run.extent).from)) {
    return;
  }
  int32_t before = kNone;  // extent of the run that the position before this one starts or continues
  for (int64_t i = run.begin; i < run.end; ++i) {
    const size_t p = position(extent(run.extent).from, i);
    emptied_by_[p] = move;
    const int32_t next = arriver_[p];
    const auto unit = next == kNone ? 0 : static_cast<int64_t>(p - position(extent(next).to, 0));
    const bool now = next != kNone && waiting(next, unit);
    if (now && next != before) {
      queue_.emplace_back(next, unit);
    }
    before = now ? next : kNone;
  }
  plan_.n_steps += run.end - run.begin;
}

/// What nothing else could move lies on cycles: opens them, one run at a time, through staging.
void Planner::break_cycles() {
  const int64_t n_slots = static_cast<int64_t>(request_.staging_bytes / grid_) / piece_units_;
  std::vector<int64_t> used(request_.pools.size(), 0);            // runs staged so far, by pool with staging
  std::map<std::pair<size_t, int64_t>, int32_t> slot_emptied_by;  // (pool with staging, slot): move
  for (int32_t e = 0; e < static_cast<int32_t>(request_.extents.size()); ++e) {
    for (int64_t i = 0; moves(e) && i < n_units(e); ++i) {
      ++plan_.n_steps;
      if (!waiting(e, i)) {
        continue;
      }
      UnitRun run = {e, i, i};
      while (run.end < n_units(e) && run.end - run.begin < piece_units_ && waiting(e, run.end)) {
        ++run.end;
      }
      const int32_t device = extent(e).to.device;
      const size_t staging = staging_of(device);
      const int64_t slot = used[staging]++ % n_slots;
      const PoolPosition staged = {device, static_cast<uint64_t>(slot * piece_units_) * grid_};
      DevicePeak& peak = plan_.peaks[staging];
      peak.staging = std::max(peak.staging, static_cast<uint64_t>((slot + 1) * piece_units_) * grid_);

      Move in = move_of(run);
      in.to = staged;
      in.to_staging = true;
      if (const auto last = slot_emptied_by.find({staging, slot}); last != slot_emptied_by.end()) {
        in.after.push_back(last->second);
      }
      mark(run, UnitState::kStaged);
      leave_source(run, add_move(std::move(in)));
      run_queue();

      Move out = move_of(run);
      out.from = staged;
      out.from_staging = true;
      wait_for_destination(run, out);  // which could only become empty after `in`
      mark(run, UnitState::kMoved);
      slot_emptied_by[{staging, slot}] = add_move(std::move(out));
      i = run.end - 1;
    }
  }
}

/// The run's copy from its old to its new place.
Move Planner::move_of(const UnitRun& run) const {
  const Extent& x = extent(run.extent);
  Move move;
  move.extent = run.extent;
  move.extent_offset = static_cast<uint64_t>(run.begin) * grid_;
  move.bytes = std::min(static_cast<uint64_t>(run.end) * grid_, x.bytes) - move.extent_offset;
  move.from = x.from;
  move.to = x.to;
  for (PoolPosition* place : {&move.from, &move.to}) {
    place->offset += on_device(*place) ? move.extent_offset : 0;
  }
  return move;
}

void Planner::wait_for_destination(const UnitRun& run, Move& move) const {
  for (int64_t i = run.begin; i < run.end; ++i) {
    const int32_t by = emptied_by_[position(extent(run.extent).to, i)];
    CHECK(by != kOccupied);
    if (by != kAlwaysEmpty && (move.after.empty() || move.after.back() != by)) {
      move.after.push_back(by);
    }
  }
}

int32_t Planner::add_move(Move move) {
  std::ranges::sort(move.after);
  const auto repeated = std::ranges::unique(move.after);
  move.after.erase(repeated.begin(), repeated.end());
  plan_.n_steps += 1 + static_cast<int64_t>(move.after.size());
  plan_.moves.push_back(std::move(move));
  return static_cast<int32_t>(plan_.moves.size()) - 1;
}

Status Planner::check_budgets() const {
  std::string missing;
  for (size_t d = 0; d < request_.pools.size(); ++d) {
    const uint64_t needed = plan_.peaks[d].bytes();
    const uint64_t budget = request_.pools[d].budget_bytes;
    if (needed > budget) {
      missing += fmt::format("{}device {} needs {:.1f} MiB ({:.1f} of them staging) and may have {:.1f} MiB",
                             missing.empty() ? "" : "; ", d, mib(needed), mib(plan_.peaks[d].staging), mib(budget));
    }
  }
  return missing.empty() ? Status() : Status(ErrorCode::kDoesNotFit, missing);
}

}  // namespace

Result<Plan> plan_transition(const TransitionRequest& request) {
  return Planner(request).run();
}

std::vector<LinkUse> link_use(const Plan& plan) {
  std::map<std::pair<int32_t, int32_t>, LinkUse> links;
  for (const Move& move : plan.moves) {
    LinkUse& link = links[{move.from.device, move.to.device}];
    link.from = move.from.device;
    link.to = move.to.device;
    link.bytes += move.bytes;
    ++link.n_moves;
  }
  std::vector<LinkUse> list;
  for (const auto& [pair, link] : links) {
    list.push_back(link);
  }
  return list;
}

double predict_seconds(const Plan& plan, const std::function<LinkSpeed(int32_t from, int32_t to)>& speed) {
  struct Link {
    LinkSpeed speed;
    std::queue<size_t> ready;  // moves
    bool busy = false;
  };
  std::map<std::pair<int32_t, int32_t>, Link> links;
  std::vector<Link*> link_of;  // by move
  std::vector<size_t> n_open;
  std::vector<std::vector<size_t>> followers(plan.moves.size());
  using End = std::pair<double, size_t>;  // time, move
  std::priority_queue<End, std::vector<End>, std::greater<>> running;
  double now = 0;
  const auto start = [&](Link& link) {
    if (!link.busy && !link.ready.empty()) {
      const size_t m = link.ready.front();
      link.ready.pop();
      link.busy = true;
      const auto bytes = static_cast<double>(plan.moves[m].bytes);
      running.emplace(now + link.speed.seconds_per_copy + bytes / link.speed.bytes_per_second, m);
    }
  };
  for (size_t m = 0; m < plan.moves.size(); ++m) {
    const Move& move = plan.moves[m];
    const auto [link, is_new] = links.try_emplace({move.from.device, move.to.device});
    if (is_new) {
      link->second.speed = speed(move.from.device, move.to.device);
    }
    link_of.push_back(&link->second);
    n_open.push_back(move.after.size());
    for (const int32_t before : move.after) {
      followers[static_cast<size_t>(before)].push_back(m);
    }
    if (move.after.empty()) {
      link->second.ready.push(m);
    }
  }
  for (auto& [ends, link] : links) {
    start(link);
  }
  while (!running.empty()) {
    const size_t m = running.top().second;
    now = running.top().first;
    running.pop();
    link_of[m]->busy = false;
    for (const size_t next : followers[m]) {
      if (--n_open[next] == 0) {
        link_of[next]->ready.push(next);
        start(*link_of[next]);
      }
    }
    start(*link_of[m]);
  }
  return now;
}

}  // namespace tessera

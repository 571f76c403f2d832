#include "runtime/copy_ahead.h"

#include <algorithm>
#include <fmt/format.h>
#include <new>
#include <utility>

#include "placement/ahead.h"
#include "runtime/placement_switch.h"

namespace tessera {
namespace {

// Pieces that are copied between two looks at whether to go on: some milliseconds' worth, which is what whoever wants
// the room may have to wait.
constexpr size_t kPiecesAtOnce = 32;

Status look_up(const TransitionLimits& limits, double fraction) {
  if (limits.progress && !limits.progress(fraction)) {
    return {ErrorCode::kCancelled, "stopped while weights were copied ahead"};
  }
  if (limits.deadline && std::chrono::steady_clock::now() > *limits.deadline) {
    return {ErrorCode::kDeadlineExceeded, "the deadline passed while weights were copied ahead"};
  }
  return {};
}

}  // namespace

std::shared_ptr<CopyAhead> CopyAhead::begin(ModelState& model, Placement next) {
  const PlacementTarget target = model.placement_target();
  const std::vector<size_t> tiles =
      to_free_places(layout_of(next), layout_of(model.placement), whole_tile_bytes(model.tiles, target));
  if (tiles.empty()) {
    return nullptr;
  }
  std::shared_ptr<CopyAhead> self(new CopyAhead(std::move(next)));
  self->plan(model, tiles);
  if (!self->take_room(model)) {
    self->drop();
    return nullptr;
  }
  return self;
}

void CopyAhead::plan(const ModelState& model, const std::vector<size_t>& tiles) {
  for (size_t d = 0; d < model.weights.size(); ++d) {
    work_.pools.push_back({static_cast<int32_t>(d), model.weights[d].range->base()});
    work_.devices.push_back({&model.devices[d], nullptr});
  }
  tiles_.assign(model.tiles.tiles.size(), false);
  const Placement& now = model.placement;
  const auto place_of = [&](const Placement& placement, size_t tile) {
    const int32_t home = placement.home[tile];
    return PoolPosition{home, model.weights[static_cast<size_t>(home)].tiles_offset + placement.offset[tile]};
  };
  for (const size_t t : tiles) {
    tiles_[t] = true;
    const PoolPosition from = place_of(now, t);
    const PoolPosition to = place_of(next_, t);
    const uint64_t bytes = model.weights[static_cast<size_t>(from.device)].tile_layouts[t].bytes;
    for (uint64_t at = 0; at < bytes; at += kSwitchPieceBytes) {
      Move move;
      move.extent = static_cast<int32_t>(t);
      move.extent_offset = at;
      move.bytes = std::min(kSwitchPieceBytes, bytes - at);
      move.from = {from.device, from.offset + at};
      move.to = {to.device, to.offset + at};
      work_.moves.push_back(std::move(move));
    }
  }
  bytes_ = count_bytes(work_);
  uint64_t all = 0;
  for (size_t t = 0; t < tiles_.size(); ++t) {
    all += place_of(now, t) == place_of(next_, t)
               ? 0
               : model.weights[static_cast<size_t>(now.home[t])].tile_layouts[t].bytes;
  }
  share_ = static_cast<double>(bytes_.moved + bytes_.local) / static_cast<double>(std::max<uint64_t>(all, 1));
}

bool CopyAhead::take_room(ModelState& model) {
  const std::lock_guard lock(mutex_);
  rooms_.reserve(model.weights.size());  // nothing that was taken may be forgotten
  for (size_t d = 0; d < model.weights.size(); ++d) {
    const DeviceWeights& weights = model.weights[d];
    const uint64_t after = model.weight_bytes(next_, d);
    if (after > weights.bytes) {
      if (!weights.range->resize(after).ok()) {
        return false;
      }
      rooms_.push_back({weights.range.get(), weights.bytes});
    }
  }
  return true;
}

Status CopyAhead::run(const TransitionLimits& limits) {
  try {
    const auto go_on = [&]() -> Status {
      Result<bool> more = true;
      while (more.ok() && *more) {
        TRY(look_up(limits, static_cast<double>(n_copied_) / static_cast<double>(work_.moves.size())));
        more = copy_some();
      }
      return more.status();
    };
    const Status status = go_on();
    if (!status.ok()) {
      drop();
    }
    return status;
  } catch (const std::bad_alloc&) {
    drop();
    return {ErrorCode::kOutOfMemory, "no memory is left on the host to copy weights ahead"};
  }
}

Result<bool> CopyAhead::copy_some() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kCopying) {
    return false;
  }
  TransitionWork some{{}, {}, work_.pools, work_.devices};
  const size_t end = std::min(n_copied_ + kPiecesAtOnce, work_.moves.size());
  some.moves.assign(work_.moves.begin() + static_cast<ptrdiff_t>(n_copied_),
                    work_.moves.begin() + static_cast<ptrdiff_t>(end));
  TRY(copy_ahead(some));
  n_copied_ = end;
  state_ = end == work_.moves.size() ? State::kWhole : state_;
  return state_ == State::kCopying;
}

void CopyAhead::drop() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kOver) {
    state_ = State::kOver;
    for (const Room& room : rooms_) {
      CHECK(room.range->resize(room.before).ok());
    }
  }
}

void CopyAhead::keep() {
  const std::lock_guard lock(mutex_);
  state_ = State::kOver;
}

bool CopyAhead::is_whole() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kWhole;
}

}  // namespace tessera

#pragma once
// Tiles that are copied to where a switch wants them while batches still run (docs/decisions/010-transitions.md,
// "Weights copied ahead"). Private to runtime.
//
// Tiles never change, so a copy of one in a place that is free stays right for as long as the placement does. What may
// end that, another switch, or a new context, which needs the room, calls drop() first; then the switch goes on without
// copies. Nothing that the present placement uses is written: until the switch commits it is whole.
//
// Threads: begin() on the loop thread; run() on the thread that asked for the switch; the rest on any.

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "placement/placement.h"
#include "runtime/model_state.h"
#include "transition/executor.h"

namespace tessera {

class CopyAhead {
 public:
  /// Plans to copy the tiles whose place in `next` is free now, and grows the weights' ranges to what `next` needs.
  /// Null, and nothing is taken, where no tile can be copied or a device has no such room. The model must outlive
  /// run() and drop().
  static std::shared_ptr<CopyAhead> begin(ModelState& model, Placement next);

  /// Copies, some pieces at a time; returns when all is copied, or drop() was called. `limits` are looked at, and
  /// progress is told the part of these copies, between the pieces. Errors: kCancelled, kDeadlineExceeded, kOutOfMemory
  /// (on the host), or what a copy failed with: then it is dropped.
  Status run(const TransitionLimits& limits);

  /// Ends the copying within some pieces and gives the room back. Nothing after the first time, or after keep().
  void drop();
  /// The room is the model's from now on.
  void keep();

  /// Whether all is copied and still there.
  [[nodiscard]] bool is_whole() const;
  [[nodiscard]] const Placement& next() const { return next_; }
  /// By tile: whether it was copied. REQUIRES: is_whole().
  [[nodiscard]] const std::vector<bool>& tiles() const { return tiles_; }
  /// Bytes that are copied to another device, and within one.
  [[nodiscard]] const TransitionBytes& bytes() const { return bytes_; }
  /// The part that the copies are of all bytes of tiles which change their place.
  [[nodiscard]] double share() const { return share_; }

 private:
  enum class State : uint8_t { kCopying, kWhole, kOver };
  struct Room {
    MemoryRange* range = nullptr;
    uint64_t before = 0;
  };

  explicit CopyAhead(Placement next) : next_(std::move(next)) {}
  void plan(const ModelState& model, const std::vector<size_t>& tiles);
  bool take_room(ModelState& model);
  /// Makes the next copies. Whether there are more. Errors: what a copy failed with.
  Result<bool> copy_some();

  const Placement next_;
  std::vector<bool> tiles_;
  TransitionWork work_;  // all copies, in whole pieces
  TransitionBytes bytes_;
  double share_ = 0;
  size_t n_copied_ = 0;  // of work_.moves; of the thread that runs

  mutable std::mutex mutex_;  // held while pieces are copied; guards all below
  State state_ = State::kCopying;
  std::vector<Room> rooms_;
};

}  // namespace tessera

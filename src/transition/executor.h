#pragma once
// The executor of transitions: runs the moves of a plan (placement/planner.h) on devices, with a journal.
//
// Every device that takes part has one queue, made for the transition: what fails on it poisons neither the computing
// nor the undoing. Every move is one copy. Which queue runs it, and in which order they are submitted, is laid down
// before the first one, as if every queue copied at the same speed: that of the device where the move arrives or, while
// nothing comes to the device that it leaves, that one's. So all links work, in both directions at once, and all queues
// to the end. Queues run independently of each other; beside what stands before it on its queue, a move waits only for
// the moves that its `after` names.
//
// Cannot deadlock: `after` names earlier moves of the plan only, and the order of submission keeps that, so the first
// unfinished move of all queues never waits (queues run what they are given in order, and nothing else uses these). The
// way back turns every `after` round, so the same holds there. Cancellation and deadline are heard between copies, and
// once after the last one: they end none that is on its way, and the way back hears neither, so the call may return
// later than the deadline. A copy that never ends is waited for without end: devices answer for theirs. Where operator
// new throws on the way back, it tries again until there is memory; nothing else but a copy without an end can hold it
// up.
//
// Journal. A move counts as done when its queue passed it without a failure. On a failed copy, a cancellation or the
// deadline, no further move is submitted, those on their way end or are skipped, and then the moves that are done run
// backwards, on fresh queues, each after the backward moves of those that had waited for it. A move that had arrived
// before (TransitionWork::arrived) runs backwards, too, if one that waits for it was submitted: that one may have
// overwritten its source. Nothing of this needs memory of a device beyond what the way forth had. Afterwards every
// byte of an extent lies where it lay before (between extents anything may lie); only where a queue of the way back
// cannot be made, or a copy of it fails, is that not so (kDeviceLost).
//
// Memory. On devices none: pools and staging are committed before, at the sizes of Plan::peaks, and stay so after an
// error, too; growing, shrinking and what the bytes mean are the caller's (runtime/placement_switch.h). On the host
// a few hundred bytes for each move, and the command lists of those on their way, at most 128.
//
// Threads: run_transition() is called on the thread that submits to the compute queues of these devices, and blocks
// until everything has ended. What else runs on the devices, of other models say, may touch none of the memory. For a
// model that thread is its loop thread, between two calls: what any thread may call is Model::set_placement()
// (runtime/engine.h).

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "placement/planner.h"

namespace tessera {

/// A pool of the plan: the region of one range on a device.
struct TransitionPool {
  int32_t device = 0;  // index into TransitionWork::devices
  std::byte* base = nullptr;
};

struct TransitionDevice {
  Device* device = nullptr;
  std::byte* staging =
      nullptr;  // as large as the plan's peaks ask; one for all pools on this device, which must share it
};

/// REQUIRES: all memory is committed and, for run_transition(), the compute queues have ended whatever touches it
/// (Queue::synchronize()); every move comes from a device, and the plan drops nothing. Moves that no planner made keep
/// its promises: `after` names earlier moves only, all that must have emptied the place where this one arrives and the
/// one that brings its source; source and place do not overlap.
struct TransitionWork {
  std::vector<Move> moves;
  /// By move: whether copy_ahead() has made it, so that its bytes are at both ends now. Empty: none is. Such a move
  /// counts in no fraction of progress. After an error, none of them counts as made any more.
  std::vector<bool> arrived;
  std::vector<TransitionPool> pools;
  std::vector<TransitionDevice> devices;
};

struct TransitionLimits {
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
  /// Called on the thread of run_transition(), before each submission and while it waits, with the part of the bytes
  /// that have arrived, 0 and 1 included, on the way forth only; false stops and undoes, also at 1. May throw nothing.
  std::function<bool(double fraction)> progress = {};
};

/// Moves everything, or nothing. Errors: kCancelled (by progress), kDeadlineExceeded, kOutOfMemory (on the host), or
/// what a copy failed with: then everything lies where it lay before. kDeviceLost: a device died, or the way back
/// failed too (no queue can be made, say): what the pools hold is undefined. Throws std::bad_alloc only before the
/// first move and after the last one was undone.
Status run_transition(const TransitionWork& work, const TransitionLimits& limits);

/// Makes copies to places that nobody uses, while others read what they copy; returns when all have ended. There is no
/// way back, and no need of one; nor is it stopped: who may want to, calls it for some moves at a time. Any thread.
/// REQUIRES: no move waits for another, or passes through staging; `arrived` is not looked at.
/// Errors: what a copy failed with, kOutOfMemory (on the host); then none counts as made.
Status copy_ahead(const TransitionWork& work);

/// Bytes that all moves carry from one device to another, and within one; also those that have arrived.
struct TransitionBytes {
  uint64_t moved = 0;
  uint64_t local = 0;
};
TransitionBytes count_bytes(const TransitionWork& work);

}  // namespace tessera

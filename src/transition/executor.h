#pragma once
// The executor of transitions: runs the moves of a plan (placement/planner.h) on devices, with a journal.
//
// Every device that takes part has one queue, made for the transition: what fails on it poisons neither the computing
// nor the undoing. Every move is one copy, on the queue of the device where it arrives; on that of the device which it
// leaves, where that one has nothing to receive just then. They run independently; a move waits only for the moves that
// its `after` names, and moves are submitted in the order in which they would start if every queue copied at the same
// speed, so that all links work, in both directions at once, and all queues to the end.
//
// Cannot deadlock: `after` names earlier moves of the plan only, and the order of submission keeps that, so the first
// unfinished move of all queues never waits (queues run what they are given in order, and nothing else uses these). The
// way back turns every `after` round, so the same holds there. Cancellation and deadline are heard between copies: they
// end none that is on its way, and the way back hears neither, so the call may return later than the deadline. Only a
// host without memory can hold the way back up: it tries again until there is some.
//
// Journal. A move counts as done when its queue passed it without a failure. On a failed copy, a cancellation or the
// deadline, no further move is submitted, those on their way end or are skipped, and then the moves that are done run
// backwards, on fresh queues, each after the backward moves of those that had waited for it. That needs no memory on
// any device beyond what the way forth had, and waits for memory of the host. Afterwards every byte lies where it lay
// before; only where a copy of the way back fails too is that not so (kDeviceLost).
//
// Memory. On devices none: pools and staging are committed before, at the sizes of Plan::peaks, and stay so after an
// error, too; growing, shrinking and what the bytes mean are the caller's (runtime/placement_switch.h). On the host
// a few hundred bytes for each move, and the command lists of those on their way, at most 128.
//
// Threads: run_transition() is called on the thread that submits to the devices, while nothing runs on them, and blocks
// until everything has ended. For a model that is its loop thread, between two calls: what any thread may call at any
// time is Model::set_placement() (runtime/engine.h).

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
  std::byte* staging = nullptr;  // what the plan's peaks ask for, of the pools on this device that have staging
};

/// REQUIRES: all memory is committed; every move comes from a device and waits for earlier ones only; the plan drops
/// nothing; no queue uses the memory, but for copy_ahead().
struct TransitionWork {
  std::vector<Move> moves;
  /// By move: whether it was made before, by copy_ahead(); its source is whole, too. Empty: none was.
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

/// Makes copies whose places nobody uses, while others read what they copy; returns when all have ended. There is no
/// way back, and no need of one. Any thread. REQUIRES: no move waits for another, or passes through staging.
/// Errors: what a copy failed with, kOutOfMemory (on the host); then some were not made.
Status copy_ahead(const TransitionWork& work);

/// Bytes that the moves carry from one device to another, and within one.
struct TransitionBytes {
  uint64_t moved = 0;
  uint64_t local = 0;
};
TransitionBytes count_bytes(const TransitionWork& work);

}  // namespace tessera

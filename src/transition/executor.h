#pragma once
// The executor of transitions: runs the moves of a plan (placement/planner.h) on devices, with a journal.
//
// Every move is one copy on a queue of the device where it arrives or, where nothing more comes to the other, of the
// device that it leaves. The queues are made for the transition: what fails on one poisons neither the computing nor
// the undoing. They run independently; a move waits only for the moves that its `after` names, and moves are submitted
// in the order in which they would start if every queue copied at the same speed, so that all links work, in both
// directions at once, and all queues to the end.
//
// Cannot deadlock: `after` names earlier moves of the plan only, and the order of submission keeps that, so the first
// unfinished move of all queues never waits (queues run what they are given in order). The way back turns every `after`
// round, so the same holds there. Cancellation and deadline are heard between copies: they end none that is on its way.
//
// Journal. A move counts as done when its queue passed it without a failure. On a failed copy, a cancellation or the
// deadline, no further move is submitted, those on their way end or are skipped, and then the moves that are done run
// backwards, on fresh queues, each after the backward moves of those that had waited for it. That needs no memory on
// any device beyond what the way forth had. Afterwards every byte lies where it lay before.
//
// Threads: run_transition() is called on the thread that submits to the devices and blocks until everything has ended.

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

/// REQUIRES: all memory is committed; no queue uses it; every move comes from a device.
struct TransitionWork {
  std::vector<Move> moves;
  std::vector<TransitionPool> pools;
  std::vector<TransitionDevice> devices;
};

struct TransitionLimits {
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
  /// Called with the part of the bytes that have arrived, 0 and 1 included; false stops.
  std::function<bool(double fraction)> progress = {};
};

/// Moves everything, or nothing. Errors: kCancelled (by progress), kDeadlineExceeded, kOutOfMemory (on the host), or
/// what a copy failed with: then everything lies where it lay before. kDeviceLost: a device died, or the way back
/// failed too (no queue can be made, say): what the pools hold is undefined. Throws std::bad_alloc only before the
/// first move and after the last one was undone.
Status run_transition(const TransitionWork& work, const TransitionLimits& limits);

/// Bytes that the moves carry from one device to another, and within one.
struct TransitionBytes {
  uint64_t moved = 0;
  uint64_t local = 0;
};
TransitionBytes count_bytes(const TransitionWork& work);

}  // namespace tessera

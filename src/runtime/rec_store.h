#pragma once
// The bytes of recurrent state: slots on the devices, snapshots on the host. SequenceMemory keeps the book.
//
// One range per device holds rec(l, c) for every layer with such state and every cut that the device has; a slot of one
// (l, c) is contiguous. A snapshot is all slots of one sequence, side by side in a block of host memory. Moves are
// copies on the devices' compute queues, in order with the batches around them. Used on the loop thread.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "memory/sequence_memory.h"
#include "runtime/model_state.h"
#include "runtime/state_ranges.h"

namespace tessera {

class RecStore {
 public:
  /// The model must outlive the store.
  explicit RecStore(const ModelState& model) : model_(model), slots_(model) {}
  RecStore(const RecStore&) = delete;
  RecStore& operator=(const RecStore&) = delete;

  /// Takes memory for n_slots sequences and room for the addresses of n_snapshots. Errors: those of MemoryRange.
  Status open(int32_t n_slots, int32_t n_snapshots);

  /// Base of each rec(layer, cut), as LowerInput::rec_bases.
  [[nodiscard]] const std::vector<std::byte*>& bases() const { return slots_.bases(); }
  /// The ranges behind them, and bytes of one slot of each rec(layer, cut).
  [[nodiscard]] StateRanges& ranges() { return slots_; }
  [[nodiscard]] const StateRanges& ranges() const { return slots_; }
  [[nodiscard]] uint64_t slot_bytes(size_t index) const { return slot_bytes_[index]; }

  /// Memory for a snapshot's bytes, unless it has been taken before. Errors: kOutOfMemory.
  Status ready_snapshot(int32_t place);

  /// Where the state of rec(layer, cut), index layer * n_cuts + cut, lies: a sequence's, and a snapshot's.
  /// REQUIRES: the cut is not empty; ready_snapshot().
  [[nodiscard]] std::byte* slot(size_t index, int32_t seq) const {
    return slots_.bases()[index] + slot_bytes_[index] * static_cast<uint64_t>(seq);
  }
  [[nodiscard]] std::byte* snapshot(size_t index, int32_t place) const {
    return snapshots_[static_cast<size_t>(place)].get() + offsets_[index];
  }

  /// Submits the copies. REQUIRES: ready_snapshot() of every place that is saved.
  void submit(std::span<const RecMove> moves);

 private:
  const ModelState& model_;
  StateRanges slots_;
  std::vector<uint64_t> slot_bytes_;  // by (layer, cut)
  std::vector<uint64_t> offsets_;     // by (layer, cut): of its part in a snapshot
  uint64_t snapshot_bytes_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> snapshots_;
};

}  // namespace tessera

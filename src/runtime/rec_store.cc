#include "runtime/rec_store.h"

#include <algorithm>
#include <fmt/format.h>
#include <new>

#include "runtime/memory_plan.h"

namespace tessera {

Status RecStore::open(int32_t n_slots, int32_t n_snapshots) {
  slot_bytes_ = rec_slot_bytes(model_);
  std::vector<uint64_t> tile_bytes;
  for (const uint64_t bytes : slot_bytes_) {
    offsets_.push_back(snapshot_bytes_);
    snapshot_bytes_ += bytes;
    tile_bytes.push_back(bytes * static_cast<uint64_t>(n_slots));
  }
  if (snapshot_bytes_ > 0) {
    snapshots_.resize(static_cast<size_t>(n_snapshots));
  }
  return slots_.open(std::move(tile_bytes), "recurrent state");
}

Status RecStore::ready_snapshot(int32_t place) {
  auto& block = snapshots_[static_cast<size_t>(place)];
  if (block == nullptr) {
    block.reset(new (std::nothrow) std::byte[snapshot_bytes_]);
  }
  if (block == nullptr) {
    return {ErrorCode::kOutOfMemory, fmt::format("no {} bytes of host memory for a snapshot", snapshot_bytes_)};
  }
  return {};
}

void RecStore::submit(std::span<const RecMove> moves) {
  DeviceLists lists(model_.devices.size());
  for (const RecMove& move : moves) {
    for (size_t i = 0; i < slot_bytes_.size(); ++i) {
      const uint64_t bytes = slot_bytes_[i];
      if (bytes == 0) {
        continue;
      }
      const std::byte* from = move.kind == RecMove::Kind::kRestore ? snapshot(i, move.from) : slot(i, move.from);
      std::byte* to = move.kind == RecMove::Kind::kSave ? snapshot(i, move.to) : slot(i, move.to);
      auto& list = lists[home_of_state(model_, i)];
      if (list == nullptr) {
        list = std::make_shared<CommandList>();
      }
      Command command;
      command.copy = {to, from, bytes, bytes, bytes, 1, RowCount::kFixed};
      command.name = "move recurrent state";
      list->push_back(std::move(command));
    }
  }
  model_.submit(lists);
}

}  // namespace tessera

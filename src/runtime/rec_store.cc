#include "runtime/rec_store.h"

#include <algorithm>
#include <fmt/format.h>
#include <new>

#include "runtime/memory_plan.h"

namespace tessera {

RecStore::~RecStore() {
  for (size_t d = 0; d < ranges_.size(); ++d) {
    model_.weights[d].rec_bytes -= ranges_[d]->committed_bytes();
  }
}

Status RecStore::open(int32_t n_slots, int32_t n_snapshots) {
  slot_bytes_ = rec_slot_bytes(model_);
  bases_.assign(slot_bytes_.size(), nullptr);
  std::vector<uint64_t> tile_bytes;
  for (const uint64_t bytes : slot_bytes_) {
    offsets_.push_back(snapshot_bytes_);
    snapshot_bytes_ += bytes;
    tile_bytes.push_back(bytes * static_cast<uint64_t>(n_slots));
  }
  if (snapshot_bytes_ == 0) {
    return {};
  }
  snapshots_.resize(static_cast<size_t>(n_snapshots));
  const StateLayout layout = layout_state(model_, tile_bytes);
  for (size_t d = 0; d < layout.device_bytes.size(); ++d) {
    const uint64_t bytes = layout.device_bytes[d];
    ASSIGN_OR_RETURN(auto range, model_.devices[d].reserve(std::max<uint64_t>(bytes, 1), "recurrent state"));
    TRY(range->resize(bytes));
    model_.weights[d].rec_bytes += range->committed_bytes();
    ranges_.push_back(std::move(range));
  }
  for (size_t i = 0; i < slot_bytes_.size(); ++i) {
    if (slot_bytes_[i] > 0) {
      bases_[i] = ranges_[home_of_state(model_, i)]->base() + layout.offsets[i];
    }
  }
  return {};
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
  std::vector<std::shared_ptr<CommandList>> lists(model_.devices.size());
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
  for (size_t d = 0; d < lists.size(); ++d) {
    if (lists[d] != nullptr) {
      model_.devices[d].compute_queue().submit(std::move(lists[d]), {});
    }
  }
}

}  // namespace tessera

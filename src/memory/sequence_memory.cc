#include "memory/sequence_memory.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "base/check.h"

namespace tessera {

SequenceMemory::SequenceMemory(KvCache kv, RecMemoryConfig rec) : kv_(std::move(kv)), rec_(rec) {
  held_.resize(static_cast<size_t>(kv_.config().n_seq_max));
  places_.resize(rec_.present ? static_cast<size_t>(rec_.n_snapshots) : 0);
}

Result<SequenceMemory> SequenceMemory::create(KvCacheConfig kv, RecMemoryConfig rec) {
  if (rec.n_snapshots < 0) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("the number of snapshots is negative: {}", rec.n_snapshots));
  }
  ASSIGN_OR_RETURN(KvCache cache, KvCache::create(std::move(kv)));
  return SequenceMemory(std::move(cache), rec);
}

Status SequenceMemory::prepare(std::span<const KvToken> tokens, MemoryBatch& out) {
  TRY(kv_.prepare(tokens, out.kv));
  out.rec_rows.clear();
  out.rec_runs.clear();
  if (!rec_.present) {
    return {};
  }
  for (const int32_t seq : out.kv.row_seqs) {
    out.rec_runs.push_back({seq, 0, 0, 0});
  }
  for (const int32_t row : out.kv.seq_rows) {
    ++out.rec_runs[static_cast<size_t>(row)].n_rows;
  }
  int32_t begin = 0;
  for (RecRun& run : out.rec_runs) {
    run.row_begin = begin;
    begin += run.n_rows;
    run.position = static_cast<int32_t>(kv_.length(run.slot)) - run.n_rows;
    run.n_rows = 0;
  }
  out.rec_rows.resize(tokens.size());
  for (size_t t = 0; t < tokens.size(); ++t) {
    RecRun& run = out.rec_runs[static_cast<size_t>(out.kv.seq_rows[t])];
    out.rec_rows[static_cast<size_t>(run.row_begin + run.n_rows++)] = static_cast<int32_t>(t);
  }
  return {};
}

int64_t SequenceMemory::rewind_length(int32_t seq, int64_t wanted) const {
  const int64_t now = kv_.length(seq);
  if (wanted >= now) {
    return now;
  }
  int64_t best = rec_.present ? 0 : std::max<int64_t>(wanted, 0);
  if (rec_.present && has(seq)) {
    for (const RecSnapshot& held : held_[static_cast<size_t>(seq)]) {
      best = held.position <= wanted ? held.position : best;
    }
  }
  return best >= kv_.min_length(seq) ? best : 0;
}

const RecSnapshot* SequenceMemory::find(int32_t seq, int64_t position) const {
  const auto& list = held_[static_cast<size_t>(seq)];
  const auto it = std::ranges::find(list, position, &RecSnapshot::position);
  return it == list.end() ? nullptr : &*it;
}

// Whether the state behind position new_length - 1 can be had. What is wrong with the arguments themselves is KvCache's
// to say.
Status SequenceMemory::check_return(int32_t seq, int64_t new_length) const {
  if (!rec_.present || !has(seq) || new_length <= 0 || new_length >= kv_.length(seq) ||
      find(seq, new_length) != nullptr) {
    return {};
  }
  return {ErrorCode::kUnsupported,
          fmt::format("sequence {} has recurrent state and no snapshot at position {}: it can go back to {}, or to "
                      "nothing",
                      seq, new_length, rewind_length(seq, new_length))};
}

Status SequenceMemory::truncate(int32_t seq, int64_t new_length, std::vector<RecMove>& moves) {
  TRY(check_return(seq, new_length));
  const int64_t now = kv_.length(seq);
  TRY(kv_.truncate(seq, new_length));
  if (rec_.present && new_length > 0 && new_length < now) {
    const int32_t place = find(seq, new_length)->place;
    touch(place);
    moves.push_back({RecMove::Kind::kRestore, place, seq});
  }
  drop_behind(seq, new_length);
  return {};
}

Status SequenceMemory::fork(int32_t from, int32_t to, int64_t length, std::vector<RecMove>& moves) {
  TRY(check_return(from, length));
  TRY(kv_.fork(from, to, length));
  drop_behind(to, 0);
  if (!rec_.present || length == 0) {
    return {};
  }
  for (const RecSnapshot& held : held_[static_cast<size_t>(from)]) {
    if (held.position <= length) {
      held_[static_cast<size_t>(to)].push_back(held);
      ++places_[static_cast<size_t>(held.place)].refs;
    }
  }
  if (length == kv_.length(from)) {
    moves.push_back({RecMove::Kind::kCopySlot, from, to});
  } else {
    const int32_t place = find(from, length)->place;
    touch(place);
    moves.push_back({RecMove::Kind::kRestore, place, to});
  }
  return {};
}

Status SequenceMemory::snapshot(int32_t seq, std::vector<RecMove>& moves) {
  if (!has(seq)) {
    return {ErrorCode::kInvalidArgument, fmt::format("no sequence {}", seq)};
  }
  const int64_t now = kv_.length(seq);
  if (places_.empty() || now == 0) {
    return {};
  }
  if (const RecSnapshot* held = find(seq, now); held != nullptr) {
    touch(held->place);
    return {};
  }
  const int32_t place = take_place();
  held_[static_cast<size_t>(seq)].push_back({now, place});
  moves.push_back({RecMove::Kind::kSave, seq, place});
  return {};
}

Status SequenceMemory::restore(int32_t seq, int64_t length, std::span<const int64_t> first,
                               std::span<const int64_t> positions) {
  TRY(kv_.restore(seq, length, first));
  drop_behind(seq, 0);
  for (const int64_t position : positions.last(std::min(positions.size(), places_.size()))) {
    const int32_t place = take_place();
    held_[static_cast<size_t>(seq)].push_back({position, place});
  }
  return {};
}

void SequenceMemory::clear() {
  kv_.clear();
  for (size_t seq = 0; seq < held_.size(); ++seq) {
    drop_behind(static_cast<int32_t>(seq), 0);
  }
}

std::span<const RecSnapshot> SequenceMemory::snapshots(int32_t seq) const {
  CHECK(has(seq));
  return held_[static_cast<size_t>(seq)];
}

std::vector<int64_t> SequenceMemory::snapshot_positions(int32_t seq) const {
  std::vector<int64_t> positions;
  for (const RecSnapshot& held : snapshots(seq)) {
    positions.push_back(held.position);
  }
  return positions;
}

int32_t SequenceMemory::snapshots_free() const {
  return static_cast<int32_t>(std::ranges::count(places_, 0, &Place::refs));
}

// Drops a sequence's snapshots at positions beyond its new length.
void SequenceMemory::drop_behind(int32_t seq, int64_t length) {
  auto& list = held_[static_cast<size_t>(seq)];
  while (!list.empty() && list.back().position > length) {
    --places_[static_cast<size_t>(list.back().place)].refs;
    list.pop_back();
  }
}

// A free place, or the one used least recently, taken from whoever holds it. REQUIRES: there are places.
int32_t SequenceMemory::take_place() {
  auto it = std::ranges::find(places_, 0, &Place::refs);
  if (it == places_.end()) {
    it = std::ranges::min_element(places_, {}, &Place::last_use);
  }
  const auto place = static_cast<int32_t>(it - places_.begin());
  if (it->refs > 0) {
    for (auto& list : held_) {
      std::erase_if(list, [&](const RecSnapshot& held) { return held.place == place; });
    }
  }
  it->refs = 1;
  touch(place);
  return place;
}

}  // namespace tessera

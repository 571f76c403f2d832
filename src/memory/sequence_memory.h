#pragma once
// The book of everything that sequences hold: pages of the KV cache and, for models with recurrent layers, one slot of
// state per sequence with snapshots of it.
//
// Pure bookkeeping, like KvCache, which keeps the pages: what must happen to the bytes of recurrent state is returned
// as moves, to be carried out in order before the next batch. Sequence s has slot s in every rec(l, c). A slot holds
// the state behind the sequence's last position and cannot be rewound: a sequence goes back to a position that has a
// snapshot, or to nothing. Snapshots are numbered places on the host; forked sequences share them by reference count;
// when all are taken, the one that was used least recently goes.
//
// Not thread-safe: owned by the model's loop thread.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "memory/kv_cache.h"
#include "tensor/rec_run.h"

namespace tessera {

struct RecMemoryConfig {
  bool present = false;     // the model has recurrent layers
  int32_t n_snapshots = 0;  // places for snapshots
};

/// Bytes to move, in every rec(l, c).
struct RecMove {
  enum class Kind : uint8_t {
    kCopySlot,  // slot -> slot
    kSave,      // slot -> snapshot
    kRestore,   // snapshot -> slot
  };
  Kind kind = Kind::kCopySlot;
  int32_t from = 0;
  int32_t to = 0;
  bool operator==(const RecMove&) const = default;
};

/// A sequence's reference to a snapshot.
struct RecSnapshot {
  int64_t position = 0;  // how many tokens it has seen
  int32_t place = 0;
};

struct MemoryBatch {
  KvBatch kv;
  std::vector<int32_t> rec_rows;  // [n_tokens] rows by sequence, in order of position; empty without recurrent layers
  std::vector<RecRun> rec_runs;   // one per row of kv.row_seqs, in that order
};

class SequenceMemory {
 public:
  /// Errors: kInvalidArgument for a field that is out of range.
  static Result<SequenceMemory> create(KvCacheConfig kv, RecMemoryConfig rec);

  /// As KvCache::prepare: all or nothing. After an error `out` is unspecified.
  Status prepare(std::span<const KvToken> tokens, MemoryBatch& out);
  /// As KvCache::trim_windows.
  void trim_windows() { kv_.trim_windows(); }

  [[nodiscard]] int64_t length(int32_t seq) const { return kv_.length(seq); }

  /// The largest length <= wanted that truncate() accepts: of a recurrent model a snapshot's position, 0 or the present
  /// length; of a model whose window pages are gone possibly 0. 0 when there is no such sequence.
  [[nodiscard]] int64_t rewind_length(int32_t seq, int64_t wanted) const;

  /// Forgets positions >= new_length, and snapshots behind it; adds what must be moved. Errors: kInvalidArgument
  /// (longer than now, no such sequence), kUnsupported (neither 0 nor a length that can be returned to); then nothing
  /// changed.
  Status truncate(int32_t seq, int64_t new_length, std::vector<RecMove>& moves);

  /// Makes `to` a copy of the first `length` positions of `from`, snapshots included, dropping what `to` held; adds
  /// what must be moved. Errors: as truncate; to == from is kInvalidArgument; then nothing changed.
  Status fork(int32_t from, int32_t to, int64_t length, std::vector<RecMove>& moves);

  /// Keeps a snapshot of the sequence's state at its present length; adds what must be moved: nothing when there is one
  /// already, when the length is 0, for a model without recurrent layers, and without places for snapshots.
  /// Errors: kInvalidArgument (no such sequence).
  Status snapshot(int32_t seq, std::vector<RecMove>& moves);

  /// Takes back what snapshot() did, when there is no memory for the bytes. REQUIRES: a sequence just handed to it.
  void drop_snapshot(int32_t seq) { drop_behind(seq, length(seq) - 1); }

  /// As KvCache::restore; what the sequence held goes, snapshots included, and it gets places for snapshots at
  /// `positions` (ascending, within its length), or for as many of the last ones as there are places. The caller fills
  /// slot and places.
  Status restore(int32_t seq, int64_t length, std::span<const int64_t> first, std::span<const int64_t> positions);

  /// Empties every sequence.
  void clear();

  /// A sequence's snapshots, ascending by position. REQUIRES: 0 <= seq < n_seq_max. Valid until the next change.
  [[nodiscard]] std::span<const RecSnapshot> snapshots(int32_t seq) const;
  /// Their positions.
  [[nodiscard]] std::vector<int64_t> snapshot_positions(int32_t seq) const;
  /// Places for snapshots that nobody refers to.
  [[nodiscard]] int32_t snapshots_free() const;
  [[nodiscard]] const KvCache& kv() const { return kv_; }

 private:
  // Invariant: refs counts the entries of held_ with this place.
  struct Place {
    int32_t refs = 0;
    uint64_t last_use = 0;
  };

  SequenceMemory(KvCache kv, RecMemoryConfig rec);
  [[nodiscard]] bool has(int32_t seq) const { return seq >= 0 && seq < kv_.config().n_seq_max; }
  /// The snapshot of a sequence at exactly this position, or null.
  [[nodiscard]] const RecSnapshot* find(int32_t seq, int64_t position) const;
  Status check_return(int32_t seq, int64_t new_length) const;
  void drop_behind(int32_t seq, int64_t length);
  int32_t take_place();
  void touch(int32_t place) { places_[static_cast<size_t>(place)].last_use = ++n_uses_; }

  KvCache kv_;
  RecMemoryConfig rec_;
  std::vector<std::vector<RecSnapshot>> held_;  // by sequence; ascending by position
  std::vector<Place> places_;
  uint64_t n_uses_ = 0;
};

}  // namespace tessera

#pragma once
// Between a context's memory on its devices and the state format (memory/state_format.h). Private to runtime; on the
// loop thread only.

#include <memory>
#include <span>
#include <vector>

#include "memory/sequence_memory.h"
#include "memory/state_format.h"
#include "runtime/context.h"
#include "runtime/model_state.h"
#include "runtime/rec_store.h"

namespace tessera {

/// The shape of a context's states. Errors: those of model_fingerprint().
Result<StateShape> state_shape(const ModelState& model, const ContextOptions& options);

/// The state of one sequence, planned; of all that hold something where seq is kAllSequences. tokens: by sequence.
StateContent content_of(const StateShape& shape, const SequenceMemory& memory, const KvClasses& classes,
                        std::span<const std::vector<int32_t>> tokens, int32_t seq, int64_t n_logits);

/// The book once content is restored: into `seq`, or in place of everything (kAllSequences).
/// Errors: kInvalidArgument, kCacheFull; those of KvCache::restore.
Result<SequenceMemory> restored_book(const SequenceMemory& memory, const KvClasses& classes,
                                     const StateContent& content, int32_t seq);

/// Addresses of a context's memory, as add_state_copies() needs them.
struct StateMemory {
  const ModelState& model;
  const StateShape& shape;
  const SequenceMemory& book;
  std::span<std::byte* const> kv_bases;  // [layer * n_cuts + cut]
  const RecStore& rec;
};

/// Adds the copies between what sequence `seq` of memory.book has (pages, slots, snapshots) and the bytes of a state:
/// to the bytes, or with `restoring` from them. REQUIRES: the places of its snapshots are ready.
void add_state_copies(const StateMemory& memory, const StateSequence& sequence, int32_t seq, std::byte* bytes,
                      bool restoring, DeviceLists& lists);

}  // namespace tessera

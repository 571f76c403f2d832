#pragma once
// What a placement decides about a context: its memory on the devices and its lowered program. Private to runtime; on
// the loop thread only.
//
// A switch of the model's placement first makes a Next of every context, then grows ranges and moves bytes, and then
// takes every Next at once; until then the context is whole in the old placement.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "memory/sequence_memory.h"
#include "placement/planner.h"
#include "runtime/context.h"
#include "runtime/memory_plan.h"
#include "runtime/model_state.h"
#include "runtime/rec_store.h"
#include "runtime/state_ranges.h"

namespace tessera {

/// A range that a switch resizes.
struct RangeChange {
  size_t device = 0;
  MemoryRange* range = nullptr;
  uint64_t before = 0;
  uint64_t after = 0;
};

/// Extents of a plan with the pools that they lie in.
struct PlannedExtents {
  struct Pool {
    size_t device = 0;
    std::byte* base = nullptr;
  };
  std::vector<Extent> extents;
  std::vector<Pool> pools;
};

class ContextMemory {
 public:
  /// The model and the book of what sequences hold must outlive this.
  ContextMemory(ModelState& model, const ContextOptions& options, const ContextSizes& sizes,
                const SequenceMemory& book);
  ~ContextMemory();
  ContextMemory(const ContextMemory&) = delete;
  ContextMemory& operator=(const ContextMemory&) = delete;

  /// Takes memory, lowers, and makes the model know this context. Errors: kDoesNotFit (per device), kUnsupported (cache
  /// types), kOutOfMemory.
  Status open();

  /// The program under the model's placement; another one after every switch.
  [[nodiscard]] const std::shared_ptr<const Lowered>& lowered() const { return lowered_; }
  [[nodiscard]] const ContextStats& stats() const { return stats_; }
  /// Base of each kv(layer, cut), index layer * n_cuts + cut; null where there is none.
  [[nodiscard]] const std::vector<std::byte*>& kv_bases() const { return kv_.bases(); }
  [[nodiscard]] RecStore& rec() { return rec_; }
  [[nodiscard]] const StateRanges& kv_ranges() const { return kv_; }
  [[nodiscard]] const StateRanges& rec_ranges() const { return rec_.ranges(); }
  [[nodiscard]] const HostInputLayout& host_layout() const { return host_layout_; }
  /// What the host shares with the devices' queues, by parity. They stay where they are.
  [[nodiscard]] std::byte* host_inputs(size_t parity) const { return hosts_[parity].inputs.get(); }
  [[nodiscard]] float* host_logits(size_t parity) const { return hosts_[parity].logits.get(); }  // [n_outputs, n_vocab]
  /// [n_tokens, n_embd]; null without ContextOptions::embeddings.
  [[nodiscard]] float* host_embeddings(size_t parity) const { return hosts_[parity].embeddings.get(); }

  /// Submits copies of pages, in every tile of their class, to the devices that have them.
  void copy_pages(std::span<const KvPageCopy> copies);

  /// Bytes that a device's ranges hold.
  [[nodiscard]] uint64_t kv_bytes(size_t device) const { return kv_.committed_bytes(device); }
  [[nodiscard]] uint64_t rec_bytes(size_t device) const { return rec_.ranges().committed_bytes(device); }
  [[nodiscard]] uint64_t scratch_bytes(size_t device) const { return scratch_ranges_[device]->committed_bytes(); }

  /// This context under another placement.
  struct Next {
    Layout kv;
    Layout rec;
    std::vector<std::byte*> kv_bases;
    std::vector<std::byte*> rec_bases;
    std::shared_ptr<const Lowered> lowered;
  };
  /// Changes nothing. Errors: those of lower().
  [[nodiscard]] Result<Next> lower_for(const Placement& placement) const;
  /// Adds what must be resized, and what must move: the used pages of KV that change their place, and the states of
  /// sequences that hold something.
  void add_changes(const Next& next, std::vector<RangeChange>& changes) const;
  void add_extents(const Next& next, PlannedExtents& planned) const;
  /// The bytes lie as `next` says.
  void take(Next next) noexcept;

 private:
  struct HostBlocks {
    // Not filled: a page of them takes memory only when a batch first needs it.
    std::unique_ptr<std::byte[]> inputs;
    std::unique_ptr<float[]> logits;
    std::unique_ptr<float[]> embeddings;
  };
  struct Run {
    uint64_t begin = 0;  // bytes of a tile
    uint64_t end = 0;
  };

  Status open_scratch(const std::vector<DeviceNeed>& needs);
  [[nodiscard]] Result<std::shared_ptr<const Lowered>> lower_with(const Placement& placement,
                                                                  const std::vector<std::byte*>& kv_bases,
                                                                  const std::vector<std::byte*>& rec_bases) const;
  [[nodiscard]] uint64_t kv_page_bytes_of(size_t index) const;
  void add_state_extents(const StateRanges& state, const Layout& next, const std::vector<std::vector<bool>>& used,
                         const std::function<std::pair<int32_t, uint64_t>(size_t)>& piece_of,
                         PlannedExtents& planned) const;
  void count_stats();

  ModelState& model_;
  const ContextOptions& options_;
  const ContextSizes& sizes_;
  const SequenceMemory& book_;
  StateRanges kv_;
  RecStore rec_;
  std::vector<std::unique_ptr<MemoryRange>> scratch_ranges_;  // by device
  HostInputLayout host_layout_;
  std::array<HostBlocks, 2> hosts_;
  std::shared_ptr<const Lowered> lowered_;
  ContextStats stats_;
};

}  // namespace tessera

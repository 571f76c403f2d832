#pragma once
// ModelState: everything a loaded model consists of, as model loading fills it and contexts use it. Private to runtime.
//
// Written by Model::load and, afterwards, on the loop thread only.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/registry.h"
#include "gguf/gguf.h"
#include "kernels/kernel_table.h"
#include "models/architecture.h"
#include "placement/placement.h"
#include "program/build/kv_classes.h"
#include "program/lower/lower.h"
#include "runtime/engine.h"
#include "runtime/grammar/token_trie.h"
#include "runtime/loop_thread.h"

namespace tessera {

class ContextMemory;
class CopyAhead;

/// Weights of one device: replicas, then tiles, in one range, whose address space is for every tile of the model.
struct DeviceWeights {
  const KernelTable* kernels = nullptr;
  std::vector<TileLayout> tile_layouts;  // by tile, for every tile of the model
  std::unique_ptr<MemoryRange> range;
  uint64_t tiles_offset = 0;  // where the tile region starts
  uint64_t bytes = 0;         // 0: the device is not used
};

/// Command lists by device; null where a device has nothing to do.
using DeviceLists = std::vector<std::shared_ptr<CommandList>>;

class ModelState {
 public:
  std::unique_ptr<GgufFile> file;
  std::unique_ptr<Tokenizer> tokenizer;  // null: text_status says why
  std::once_flag token_trie_once;
  std::shared_ptr<const TokenTrie> token_trie;  // null until it is asked for
  Status text_status;
  std::string chat_template;
  SamplerOptions sampling;  // the file's recommendation
  ModelSummary summary;

  ModelDefinition definition;
  KvClasses kv_classes;
  TileSet tiles;
  ReplicaLayout replicas;
  std::vector<int32_t> fixed_home;  // by tile: where it lives whatever the split, or -1
  int64_t n_expert_slots = 0;
  Placement placement;
  PlacementRequest request;  // what placement was made from
  DeviceSet devices;
  std::vector<DeviceWeights> weights;                 // by device
  std::vector<std::unique_ptr<MemoryRange>> staging;  // by device, of switches; none before the first one
  uint64_t staging_bytes = 0;  // TransitionOptions::staging_bytes of the last switch, also for what closes its holes
  std::vector<ContextMemory*> contexts;  // those that are open
  bool switching = false;                // a transition runs: nothing else may
  std::shared_ptr<CopyAhead> ahead;      // the last one; null: none. Others end it by end_copying_ahead()
  bool spread = false;                   // tiles lie behind holes, which the end of the switch closes
  Status lost;                           // why what the devices held is gone; ok: it is not
  std::unique_ptr<LoopThread> loop;

  [[nodiscard]] int n_devices() const { return static_cast<int>(devices.size()); }
  /// Bytes and tiles by device. REQUIRES: on the loop thread.
  [[nodiscard]] std::vector<DeviceUse> device_use() const;
  /// The program and a placement with this model's addresses; KV, shape and host blocks are the caller's to fill.
  /// Refers to the placement.
  [[nodiscard]] LowerInput lower_input(const Placement& where) const;
  /// What generators of placements ask about this model. Refers to the model.
  [[nodiscard]] PlacementTarget placement_target() const;
  /// Hands the lists, which become null, to the devices' compute queues.
  void submit(DeviceLists& lists) const;
  /// Bytes of a device's weights under a placement.
  [[nodiscard]] uint64_t weight_bytes(const Placement& where, size_t device) const {
    const uint64_t tiles_begin = weights[device].tiles_offset;
    return where.uses(static_cast<int>(device)) ? tiles_begin + where.tile_region_bytes[device] : 0;
  }
};

}  // namespace tessera

#pragma once
// ModelState: everything a loaded model consists of, as model loading fills it and contexts use it. Private to runtime.
//
// Written by Model::load and, afterwards, on the loop thread only.

#include <memory>
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
#include "runtime/loop_thread.h"

namespace tessera {

/// Weights of one device: replicas, then tiles, in one range.
struct DeviceWeights {
  const KernelTable* kernels = nullptr;
  std::vector<TileLayout> tile_layouts;  // by tile, for every tile of the model
  std::unique_ptr<MemoryRange> range;
  uint64_t tiles_offset = 0;  // where the tile region starts
  uint64_t bytes = 0;
  uint64_t kv_bytes = 0;       // of all contexts
  uint64_t rec_bytes = 0;      // of all contexts
  uint64_t scratch_bytes = 0;  // of all contexts
};

class ModelState {
 public:
  std::unique_ptr<GgufFile> file;
  std::unique_ptr<Tokenizer> tokenizer;  // null: text_status says why
  Status text_status;
  std::string chat_template;
  SamplerOptions sampling;  // the file's recommendation
  ModelSummary summary;

  ModelDefinition definition;
  KvClasses kv_classes;
  TileSet tiles;
  ReplicaLayout replicas;
  Placement placement;
  int64_t n_expert_slots = 0;
  DeviceSet devices;
  std::vector<DeviceWeights> weights;  // by device
  std::unique_ptr<LoopThread> loop;

  [[nodiscard]] int n_devices() const { return static_cast<int>(devices.size()); }
  /// Bytes and tiles by device. REQUIRES: on the loop thread.
  [[nodiscard]] std::vector<DeviceUse> device_use() const;
  /// The program and placement with this model's addresses; KV, shape and host blocks are the caller's to fill.
  [[nodiscard]] LowerInput lower_input() const;
};

}  // namespace tessera

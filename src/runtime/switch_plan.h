#pragma once
// What a switch between two placements of a model would do: moves, bytes per link, memory, time. Counted on the
// model's outline with the code that loads and carves: no weight is read and no device moves a byte.
//
// Bytes of a device lie in three ranges, weights (replicas, then tiles), KV cache and recurrent state; each must hold
// the larger of what both placements put there, and scratch the larger of both. Tiles that stay keep their places
// (keep_places()). Of the caches only the pages that n_kv_tokens fill move, as one run per layer and cut; of a real
// switch those that the sequences use, in as many runs as they lie in.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "placement/planner.h"
#include "runtime/device_need.h"
#include "runtime/engine.h"

namespace tessera {

struct SwitchRequest {
  ModelOptions model;            // file, devices, budgets, context; split_mode and tensor_split: the old placement
  std::string to_mode;           // the new one
  std::vector<double> to_split;  // its shares; empty: even
  int64_t n_kv_tokens = 0;       // that every sequence has in the caches; at most the context's n_ctx
  uint64_t staging_bytes = uint64_t{64} << 20;
  LinkSpeed link;   // between devices
  LinkSpeed local;  // within one
};

struct SwitchDevice {
  std::string name;
  uint64_t budget_bytes = 0;
  DeviceNeed from;             // as loaded under the old placement
  DeviceNeed to;               // as loaded under the new one
  uint64_t peak_bytes = 0;     // while the switch runs, staging included
  uint64_t staging_bytes = 0;  // of it
};

/// What an extent of the plan is.
struct SwitchExtent {
  std::string_view kind;  // "attn", "ffn", "head", "expert", "replica", "kv", "rec"
  int32_t layer = -1;     // -1: none
  int32_t cut = -1;       // -1: none
  int32_t expert = -1;    // -1: none
};

struct SwitchPlan {
  int n_cuts = 1;
  std::vector<SwitchDevice> devices;
  std::vector<SwitchExtent> extents;  // by Move::extent
  Plan plan;
  std::vector<LinkUse> links;
  double seconds = 0;  // predicted
};

/// Errors: those of the file and of counting; kInvalidArgument naming the flag; kDoesNotFit with a clause per device
/// that lacks bytes (needed and free) for the old placement, the new one, or the switch.
Result<SwitchPlan> plan_switch(const SwitchRequest& request, const Log& log = {});

}  // namespace tessera

#pragma once
// Fitting a model into its devices' budgets: which context length, which shares, and what goes to the host, found by
// counting alone (memory_plan.h) on the model's outline. No weight is read.
//
// The host is the last CPU device; where other kinds of devices stand beside it, it gets no share of its own and holds
// only what overflows. The search space:
//   host     nothing, then the experts of the first 1, 2, … layers (of a model without experts: the feed-forward parts
//            of that many), then also the first 1, 2, … layers as a whole;
//   shares   layer: every way to give each device a run of layers; tensor: every way to give each device some of the
//            cuts, with as few cuts as even shares have up to 8; none: all on the first device;
//   context  what is asked for, and the multiples of 256 below it, down to the least.
// Of what fits, the least on the host is chosen, then the longest context, then the fewest cuts, then the shares
// nearest to even, or to the budgets. Whatever the caller gave stays as it is. A fit for several modes means that each
// of them fits with the same context, cuts and host part, one at a time, and so does a switch from any of them to any
// other: every range as large as the larger of both, and one unit of staging.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/device_need.h"
#include "runtime/engine.h"

namespace tessera {

class ModelState;

/// A split mode, and its shares where they are given; empty: to be found.
struct FitMode {
  std::string split_mode;
  std::vector<double> tensor_split;
};

struct FitRequest {
  ModelOptions model;                  // as the user gave it; split_mode and tensor_split are not looked at
  std::vector<FitMode> modes;          // at least one
  bool finds_context = false;          // lower model.context.n_ctx (0: what the model was trained on) where that helps
  int64_t n_ctx_min = 4096;            // but not below this
  std::vector<uint64_t> margin_bytes;  // that each device keeps free: none, one for all, or one each
  std::string to_lower = "--ctx-size or --ubatch-size";  // what kDoesNotFit advises to lower: flags the caller has
};

struct FitDevice {
  std::string name;
  uint64_t budget_bytes = 0;
  std::vector<DeviceNeed> needs;   // by mode
  std::vector<std::string> parts;  // by mode, for people: "17 of 24 layers", "3 of 4 cuts"
};

struct Fit {
  ModelOptions model;          // to load with: the first mode, its shares, and all that was found
  std::vector<FitMode> modes;  // with their shares
  std::vector<FitDevice> devices;
  std::string flags;  // what was found, as flags of the command line; empty: nothing had to change
};

/// What weights and options.context need of each device (needs[0]; no parts), as the options say. Errors: those of
/// Model::load before it reads a weight, kDoesNotFit among them.
Result<std::vector<FitDevice>> count_model(const ModelOptions& options);

/// Errors: those of the file, of opening devices and of counting; kInvalidArgument naming the flag; kDoesNotFit: the
/// smallest number of bytes that would have to be added to every device, and what each device then needs and has.
Result<Fit> fit_model(const FitRequest& request);

/// The same for a model in outline (outline.h), whose tiles and placement it leaves as the answer has them.
Result<Fit> fit_outline(ModelState& model, const FitRequest& request);

}  // namespace tessera

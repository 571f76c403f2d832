#pragma once
// A model in outline: what the head of its file says, its devices, its tiles and a placement of them, without
// vocabulary, weights or loop thread. Counting (memory_plan.h) needs no more, so that plans and fits read no weight and
// count with the very code that Model::load goes on with.
//
// The steps fill a ModelState in this order: define_model, open_model_devices, cut_model, fix_homes, place_model. The
// last three may be repeated as long as no weight has been loaded.

#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/status.h"
#include "runtime/model_state.h"

namespace tessera {

/// Fills definition and kv_classes from model.file. Errors: those of the file (a vocabulary larger than the embedding
/// table, where model.tokenizer is there).
Status define_model(ModelState& model, const std::string& path);

/// Opens the devices and chooses their kernels. Devices that compute nothing are refused, or, when only counting, stand
/// for ones with the same kernels as the rest. Errors: kInvalidArgument naming the flag; kUnsupported; those of
/// opening.
Status open_model_devices(ModelState& model, const ModelOptions& options, bool only_counting);

/// Cuts the model into tiles and lays each out for every device. n_cuts: 1 .. kMaxCuts. Errors: kUnsupported: a weight
/// whose type has no product.
Status cut_model(ModelState& model, int n_cuts);

/// Cuts that the options ask for under these shares. Errors: kInvalidArgument, naming --cuts or --tensor-split.
Result<int> cuts_of(const ModelState& model, const ModelOptions& options, const Shares& shares);

/// Fixes homes and expert slots as the options say, for the tiles at hand. Errors: those of fixed_homes().
Status fix_homes(ModelState& model, const ModelOptions& options);

/// Makes `placement` the model's and counts the weights of each device under it.
void place_model(ModelState& model, Placement placement);

/// The last three steps as the options say. Errors: theirs, and kInvalidArgument: no such split mode.
Status place_by_options(ModelState& model, const ModelOptions& options);

/// "rounded to what 2 cuts express: cpu:0 gets 2 of 2, cpu:1 gets 0 of 2"; empty: the shares are what they say, within
/// half a percent, or the mode does not divide by cuts.
std::string rounding_note(const ModelState& model, SplitMode mode, const Shares& shares);
/// Logs it.
void report_shares(const ModelState& model, SplitMode mode, const Shares& shares, const Log& log);

/// The first two steps for a model that is only counted. Errors: theirs.
Result<std::unique_ptr<ModelState>> open_outline(const ModelOptions& options);

}  // namespace tessera

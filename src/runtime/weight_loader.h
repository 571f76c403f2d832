#pragma once
// Fills the devices' weight ranges from the model file: replicas as float32, tiles packed as each device's kernel class
// wants them.
//
// Work is divided over threads by row groups; every packed byte is written once, by one thread, so the result does not
// depend on how many there are. No second copy is made in memory: packing reads the mapped file and writes the tile.

#include "runtime/model_state.h"

namespace tessera {

/// Errors: kInvalidData when the file changed while it was read.
/// REQUIRES: weights[d].range is committed to weights[d].bytes. progress is called on the caller's thread.
/// Errors: kCancelled when it returned false; those of a file that changed meanwhile.
Status load_weights(ModelState& model, int n_threads, const LoadProgress& progress);

}  // namespace tessera

#pragma once
// Fills the devices' weight ranges from the model file: replicas as float32, tiles packed as each device's kernel class
// wants them.
//
// Work is divided over threads by row groups; every packed byte is written once, by one thread, so the result does not
// depend on how many there are. A thread reads some rows into a buffer that fits into its core's cache and packs them
// into the tile from there: no second copy of the model is made in memory, and one thread reads while another packs.
// The system is told some tasks ahead what comes, so that a disk is busy all the time.

#include "runtime/model_state.h"

namespace tessera {

/// REQUIRES: weights[d].range is committed to weights[d].bytes. progress is called on the caller's thread.
/// Errors: kCancelled when it returned false; kIo when the file cannot be read or changed meanwhile.
Status load_weights(ModelState& model, int n_threads, const LoadProgress& progress);

}  // namespace tessera

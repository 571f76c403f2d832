#pragma once
// The fingerprint of a model: what saved states are bound to (memory/state_format.h).
//
// It covers what decides the contents of a cache: the architecture, its hyper-parameters (all metadata under its name,
// as they are in force: what overrides them makes another model, and the same one as a file with those values), and of
// every tensor name, shape, type and 64 bytes each from its beginning, middle and end. Two trainings of one
// architecture differ in nothing but weights, so the header alone would not tell them apart; hashing every byte would
// read the whole file for each state. Names, templates and vocabularies may change: a cache knows token ids only. How
// the file is split, and the order of its tensors, do not count.

#include "gguf/gguf.h"
#include "memory/state_format.h"

namespace tessera {

/// Reads a few hundred bytes per tensor. Errors: kIo when the file has changed since it was opened.
Result<ModelFingerprint> model_fingerprint(const GgufFile& file);

}  // namespace tessera

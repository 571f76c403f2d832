#pragma once
// docs/architectures.md: what runs, which tensors each architecture reads, where they live and how they are cut.
//
// Made from what the registered architectures say about the small models of tests/data: the union over all models of an
// architecture. The page therefore shows optional tensors as far as some model has them.

#include <string>

#include "base/status.h"

namespace tessera {

/// The page. Errors: a model that its architecture refuses; a registered architecture without any model.
Result<std::string> architectures_page();

}  // namespace tessera

#pragma once
// A model for fuzzing what lies above it: a small vocabulary over bytes, and a Serving that answers every request with
// pieces of its prompt. Stands in for runtime's engine, context and serving at link time, so that no kernel is built.

#include <memory>

#include "server/server.h"

namespace tessera {

/// The one model, made at the first call.
std::shared_ptr<ServedModel> fake_model();

/// Answers all that was submitted, on this thread.
void run_fake_serving();

}  // namespace tessera

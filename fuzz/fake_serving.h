#pragma once
// Models for fuzzing what lies above them: a small vocabulary over bytes, a Serving that answers every request with a
// few fixed pieces, and a placement that switches or fails. Stands in for runtime's engine, context, serving and live
// placement at link time, so that no kernel is built. A route that calls more of these than is here does not link: add
// it.

#include <memory>
#include <string>

#include "server/server.h"

namespace tessera {

/// Two kinds, which differ in the form of their answers, in pooling, and in how they fill in.
enum class FakeKind { kTagged, kHarmony };
std::shared_ptr<ServedModel> fake_model(const std::string& name, FakeKind kind);

/// Does all that was asked of the models, on this thread. False: there was nothing to do.
bool run_fake_serving();

}  // namespace tessera

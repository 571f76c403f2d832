#pragma once
// What a request was understood to ask for, in llama.cpp's names.

#include <nlohmann/json_fwd.hpp>

#include "runtime/serving.h"
#include "server/request_fields.h"

namespace tessera {

/// The samplers' settings, stops and lengths of a request.
Json settings_json(const ServingRequest& request);

}  // namespace tessera

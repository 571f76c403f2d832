#pragma once
// The models of `tessera serve`: what each --model says of one.

#include <string>
#include <vector>

#include "base/flags.h"
#include "base/status.h"

namespace tessera {

struct ModelSpec {
  std::string name;   // in requests and replies
  ParsedFlags flags;  // of the command line, with the model's own after them; --model is its file, notes are its own
};

/// In the order of the command line. One without a name is alone and gets --alias, or its file's name.
/// Errors: kInvalidArgument, which cites the --model: a name that is missing, there twice or unknown to be one; no
/// file; a flag that is unknown, has a wrong value, or holds for the whole server.
Result<std::vector<ModelSpec>> model_specs(const ParsedFlags& flags);

}  // namespace tessera

#pragma once
// The file of a model, with what the options say in the place of its metadata. The one way from a path to a model (but
// for the doctor, who looks at the file first and calls the second half): everything read from its metadata, and the
// fingerprint that saved states are bound to, is of the model as it was asked for.

#include <memory>
#include <span>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "gguf/gguf.h"
#include "runtime/engine.h"

namespace tessera {

/// Puts the texts of ModelOptions::override_kv over the file's metadata, in their order, and logs keys that the file
/// has not. Errors: kInvalidArgument citing the one that is wrong; kNotFound as GgufFile::override_value().
Status override_metadata(GgufFile& file, std::span<const std::string> overrides, const Log& log = {});

/// Opens the file of a model as the options say. Errors: those of GgufFile::open() and override_metadata().
Result<std::unique_ptr<GgufFile>> open_model_file(const ModelOptions& options, const Log& log = {});

}  // namespace tessera

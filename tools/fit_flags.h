#pragma once
// --fit, --fit-target and --fit-ctx: what is not given on the command line is chosen so that the model fits.

#include <cstdint>
#include <vector>

#include "base/flags.h"
#include "base/log.h"
#include "base/status.h"
#include "runtime/fit.h"

namespace tessera {

/// Bytes of each device that --fit leaves free: of --fit-target, or its default. REQUIRES: the command has these flags.
std::vector<uint64_t> fit_margins(const ParsedFlags& flags);

/// Where --fit is on: finds what lets every mode fit, and says it, one line per device. Elsewhere the answer is what
/// was given. finds_context: --ctx-size may be chosen where it was not given (the command has --fit-ctx). Errors:
/// kDoesNotFit with the smallest lack; those of fit_model(). REQUIRES: the command has these flags.
Result<Fit> fit_by_flags(const ParsedFlags& flags, const ModelOptions& options, const std::vector<FitMode>& modes,
                         bool finds_context, const Log& log);

/// The same for the one mode of `options`, which are changed.
Status apply_fit(const ParsedFlags& flags, ModelOptions& options, bool finds_context, const Log& log);

}  // namespace tessera

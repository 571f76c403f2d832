#pragma once
// The flags of "Sampling" as sampler options, and sampler options as JSON.

#include <string>

#include "base/flags.h"
#include "base/status.h"
#include "runtime/sampler_options.h"

namespace tessera {

/// Options with the flags that were given in place of `defaults`. Of --samplers and --sampling-seq the last one counts;
/// grammars are read from their files, and at most one may be given.
/// Errors: kInvalidArgument naming the flag.
Result<SamplerOptions> sampler_options(const ParsedFlags& flags, const SamplerOptions& defaults);

/// What of these flags is wrong with every model, said before one is loaded. Ids and names of tokens are the
/// vocabulary's to judge, and a grammar that comes through a pipe, which can be read but once, is looked at when it is
/// used. Errors: those of sampler_options(), and a grammar or schema that is none.
Status check_sampling_flags(const ParsedFlags& flags);

/// One object: every number by its name, then samplers (names in order), dry_sequence_breakers, logit_bias (pairs of
/// token and bias, a ban as null), grammar and json_schema.
std::string sampler_options_json(const SamplerOptions& options);

}  // namespace tessera

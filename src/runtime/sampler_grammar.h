#pragma once
// The grammar that sampler options ask for.

#include <memory>

#include "base/status.h"
#include "runtime/grammar/matcher.h"
#include "runtime/sampler_options.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

/// The grammar of options.grammar or options.json_schema over a model's vocabulary. trie: of the same tokenizer.
/// Names of tokens in the grammar are as the vocabulary spells them. Errors: kInvalidArgument where both texts or none
/// are given; those of Grammar::parse() and json_schema_grammar().
Result<std::shared_ptr<GrammarMasks>> sampler_grammar(const SamplerOptions& options, const Tokenizer& tokenizer,
                                                      std::shared_ptr<const TokenTrie> trie);

/// Whether the text of options.grammar or options.json_schema is one for any vocabulary at all; also where there is
/// none. Errors: as above, but a token that the grammar names may be missing.
Status check_grammar_text(const SamplerOptions& options);

}  // namespace tessera

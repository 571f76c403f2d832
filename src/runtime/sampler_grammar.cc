#include "runtime/sampler_grammar.h"

#include <string>
#include <utility>

#include "runtime/grammar/json_schema.h"

namespace tessera {

Result<std::shared_ptr<GrammarMasks>> sampler_grammar(const SamplerOptions& options, const Tokenizer& tokenizer,
                                                      std::shared_ptr<const TokenTrie> trie) {
  if (options.grammar.empty() == options.json_schema.empty()) {
    return Status(ErrorCode::kInvalidArgument, "a grammar and a JSON schema exclude each other; give one");
  }
  std::string text = options.grammar;
  if (text.empty()) {
    ASSIGN_OR_RETURN(text, json_schema_grammar(options.json_schema));
  }
  const TokenNames names = [&](std::string_view name) { return tokenizer.find(name); };
  ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, Grammar::parse(text, names));
  return std::make_shared<GrammarMasks>(std::move(grammar), std::move(trie));
}

}  // namespace tessera

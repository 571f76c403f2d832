#include "runtime/sampler_grammar.h"

#include <optional>
#include <string>
#include <utility>

#include "runtime/grammar/json_schema.h"

namespace tessera {

namespace {

Result<std::shared_ptr<const Grammar>> compiled(const SamplerOptions& options, const TokenNames& names) {
  if (options.grammar.empty() == options.json_schema.empty()) {
    return Status(ErrorCode::kInvalidArgument, "a grammar and a JSON schema exclude each other; give one");
  }
  std::string text = options.grammar;
  if (text.empty()) {
    ASSIGN_OR_RETURN(text, json_schema_grammar(options.json_schema));
  }
  return Grammar::parse(text, names);
}

}  // namespace

Result<std::shared_ptr<GrammarMasks>> sampler_grammar(const SamplerOptions& options, const Tokenizer& tokenizer,
                                                      std::shared_ptr<const TokenTrie> trie) {
  const TokenNames names = [&](std::string_view name) { return tokenizer.find(name); };
  ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, compiled(options, names));
  return std::make_shared<GrammarMasks>(std::move(grammar), std::move(trie));
}

Status check_grammar_text(const SamplerOptions& options) {
  if (options.grammar.empty() && options.json_schema.empty()) {
    return {};
  }
  return compiled(options, [](std::string_view /*name*/) { return std::optional<int32_t>(0); }).status();
}

}  // namespace tessera

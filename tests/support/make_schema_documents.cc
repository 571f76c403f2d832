// Draws documents of JSON schemas as a model without any sense would: each token uniformly among those that the mask
// allows.
//
//   make_schema_documents MODEL.gguf SEED < schemas
//
// One schema per line in, one line per schema out: "=" and the document as JSON text inside a JSON string, or "!" and
// the error. Once a document has kLong tokens, tokens that end or close something come first, or random ones would
// rarely finish.

#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "gguf/gguf.h"
#include "runtime/grammar/json_schema.h"
#include "runtime/grammar/matcher.h"
#include "runtime/vocab_loader.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

constexpr int kLong = 120;
constexpr int kTooLong = 20000;

Result<std::string> draw(const std::string& schema, const std::shared_ptr<const TokenTrie>& trie,
                         std::mt19937_64& random) {
  ASSIGN_OR_RETURN(const std::string gbnf, json_schema_grammar(schema));
  ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, Grammar::parse(gbnf));
  GrammarMatcher matcher(std::make_shared<GrammarMasks>(std::move(grammar), trie));
  std::string text;
  for (int n = 0; n < kTooLong; ++n) {
    ASSIGN_OR_RETURN(const TokenMask* mask, matcher.mask());
    std::vector<int32_t> ids;
    std::vector<int32_t> closing;
    for (int32_t id = 0; id < trie->n_vocab(); ++id) {
      if (mask->allows(id)) {
        ids.push_back(id);
        const std::string_view bytes = trie->bytes(id);
        const bool closes = trie->is_end(id) || bytes == "\"" || bytes == "]" || bytes == "}";
        closing.insert(closing.end(), n >= kLong && closes ? 1 : 0, id);
      }
    }
    // Some other tokens must come, too: a pattern may ask for a letter before the string can close.
    const std::vector<int32_t>& from = closing.empty() || random() % 4 == 0 ? ids : closing;
    if (from.empty()) {
      return Status(ErrorCode::kInvalidData, "nothing may follow " + text);
    }
    const int32_t id = from[random() % from.size()];
    if (!matcher.accept(id)) {
      return Status(ErrorCode::kInternal, "the matcher refuses what its mask allows, after " + text);
    }
    if (trie->is_end(id)) {
      return text;
    }
    text += trie->bytes(id);
  }
  return Status(ErrorCode::kInvalidData, "no end after " + text.substr(0, 300));
}

Status run(const std::string& path, uint64_t seed) {
  ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  ASSIGN_OR_RETURN(Vocab vocab, load_vocab(file.metadata()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::create(std::move(vocab)));
  const auto trie = std::make_shared<const TokenTrie>(*tokenizer);
  std::mt19937_64 random(seed);
  for (std::string schema; std::getline(std::cin, schema);) {
    const Result<std::string> text = draw(schema, trie, random);
    const nlohmann::json line = text.ok() ? *text : text.status().message();
    std::cout << (text.ok() ? "=" : "!") << line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) << "\n";
  }
  return {};
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: make_schema_documents MODEL.gguf SEED < schemas\n";
    return 2;
  }
  const tessera::Status status = tessera::run(argv[1], std::strtoull(argv[2], nullptr, 10));
  std::cerr << status.message();
  return status.ok() ? 0 : 1;
}

// libFuzzer target: a JSON schema. Its grammar, if it has one, is one that compiles (or says why it is too large), and
// a few tokens drawn under its masks fit it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "runtime/grammar/json_schema.h"
#include "runtime/grammar/matcher.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto gbnf = tessera::json_schema_grammar(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!gbnf.ok()) {
    CHECK(!gbnf.status().message().empty());
    return 0;
  }
  const auto grammar = tessera::Grammar::parse(*gbnf);
  if (!grammar.ok()) {
    // Never a fault of the text that we wrote.
    const std::string& why = grammar.status().message();
    CHECK(why.find("states") != std::string::npos || why.find("begins with itself") != std::string::npos ||
          why.find("more than") != std::string::npos);
    return 0;
  }
  static const std::vector<std::string> kPieces = {"{",  "}", "[", "]", "\"",  ":",    ",",    " ",
                                                   "a",  "1", "0", "-", ".",   "true", "null", "false",
                                                   "\\", "n", "u", "é", "\":", "\xC3", ""};
  static const auto trie = std::make_shared<const tessera::TokenTrie>(kPieces, std::vector<int32_t>{22});
  tessera::GrammarMatcher matcher(std::make_shared<tessera::GrammarMasks>(*grammar, trie));
  uint32_t choice = size > 0 ? data[size / 2] : 0;
  for (int n = 0; n < 20; ++n) {
    const auto mask = matcher.mask();
    if (!mask.ok() || (*mask)->n_allowed == 0) {
      break;
    }
    int32_t id = static_cast<int32_t>(choice % kPieces.size());
    while (!(*mask)->allows(id)) {
      id = (id + 1) % static_cast<int32_t>(kPieces.size());
    }
    CHECK(matcher.accept(id));
    choice = choice * 1103515245 + 12345;
  }
  return 0;
}

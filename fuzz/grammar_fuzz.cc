// libFuzzer target: a grammar, and after a line "====" a text that is read through it. What the masks allow is accepted
// and what they do not is refused, for a small vocabulary, after every few bytes; copies stay where they were.

#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/matcher.h"

namespace {

const std::vector<std::string>& pieces() {
  static const std::vector<std::string> kPieces = {
      "a",  "b",    "ab",   "\"", "{", "}",  "[",  "]",   "\":", ",",  "1",  "true", "\\n",      " ",
      "\n", "\xC3", "\xA9", "é",  "",  "aa", "xy", "\",", "[[",  "]]", "0.", "-",    "\xF0\x9F", "\xFF"};
  return kPieces;
}

void check_masks(tessera::GrammarMatcher& matcher) {
  const auto mask = matcher.mask();
  if (!mask.ok()) {
    return;
  }
  const tessera::TokenMask allowed = **mask;
  for (int32_t id = 0; id < static_cast<int32_t>(pieces().size()); ++id) {
    tessera::GrammarMatcher copy = matcher;
    CHECK(copy.accept(id) == allowed.allows(id));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t border = input.find("\n====\n");
  const tessera::TokenNames names = [](std::string_view name) {
    return name == "<x>" ? std::optional<int32_t>(18) : std::nullopt;
  };
  const auto grammar = tessera::Grammar::parse(input.substr(0, border), names);
  if (!grammar.ok()) {
    CHECK(!grammar.status().message().empty());
    return 0;
  }
  static const auto trie = std::make_shared<const tessera::TokenTrie>(pieces(), std::vector<int32_t>{18});
  tessera::GrammarMatcher matcher(std::make_shared<tessera::GrammarMasks>(*grammar, trie));
  check_masks(matcher);
  const std::string text = border == std::string::npos ? "" : input.substr(border + 6);
  for (size_t i = 0; i < text.size() && i < 200; ++i) {
    if (!matcher.accept_bytes(std::string_view(text).substr(i, 1))) {
      CHECK(matcher.is_dead());
      break;
    }
    if (i % 4 == 0) {
      check_masks(matcher);
    }
  }
  return 0;
}

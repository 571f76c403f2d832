#pragma once
// Helpers for the tests of grammars.

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/grammar/grammar.h"
#include "runtime/grammar/matcher.h"

namespace tessera {

/// Masks of a grammar over these pieces; the test fails where it is refused.
inline std::shared_ptr<GrammarMasks> make_masks(std::string_view gbnf, const std::vector<std::string>& pieces,
                                                const std::vector<int32_t>& end_ids = {},
                                                const TokenNames& names = {}) {
  auto grammar = Grammar::parse(gbnf, names);
  EXPECT_TRUE(grammar.ok()) << grammar.status().message() << "\n" << gbnf;
  if (!grammar.ok()) {
    return nullptr;
  }
  return std::make_shared<GrammarMasks>(*grammar, std::make_shared<const TokenTrie>(pieces, end_ids));
}

/// Whether text is one of the grammar's.
inline bool accepts(std::string_view gbnf, std::string_view text) {
  const auto masks = make_masks(gbnf, {});
  if (masks == nullptr) {
    return false;
  }
  GrammarMatcher matcher(masks);
  return (text.empty() || matcher.accept_bytes(text)) && matcher.may_end();
}

/// Whether text is the beginning of one.
inline bool accepts_beginning(std::string_view gbnf, std::string_view text) {
  const auto masks = make_masks(gbnf, {});
  return masks != nullptr && GrammarMatcher(masks).accept_bytes(text);
}

/// Why a grammar is refused; "" if it is not.
inline std::string refusal(std::string_view gbnf) {
  const auto grammar = Grammar::parse(gbnf);
  return grammar.ok() ? "" : grammar.status().message();
}

}  // namespace tessera

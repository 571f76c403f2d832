// The reference engine's answers: which texts are those of a grammar (scripts/grammar_golden.py).

#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/grammar/grammar_test_util.h"

namespace tessera {
namespace {

TEST(GrammarGolden, AcceptsWhatTheReferenceAccepts) {
  std::ifstream in(std::string(TESSERA_TEST_DATA) + "/goldens/grammar/cases.jsonl");
  size_t n_accepted = 0;
  size_t n_refused = 0;
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line);
    const auto masks = make_masks(row["grammar"].get<std::string>(), {});
    ASSERT_NE(masks, nullptr);
    for (const auto& text : row["texts"]) {
      GrammarMatcher matcher(masks);
      const bool fits = matcher.accept_bytes(text[0].get<std::string>()) && matcher.may_end();
      EXPECT_EQ(fits, text[1] == 1) << row["grammar"] << " on " << text[0];
      ++(text[1] == 1 ? n_accepted : n_refused);
    }
  }
  EXPECT_GT(n_accepted, 100U);
  EXPECT_GT(n_refused, 700U);
}

}  // namespace
}  // namespace tessera

#include "flag_table.h"

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(FlagTable, IsSound) {
  const Status status = check_flag_table(tessera_flags());
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(FlagTable, EveryExampleParses) {
  for (const CommandRow& command : tessera_flags().commands) {
    // Words of the example; a quoted text counts as one.
    std::vector<std::string> words;
    std::istringstream example{std::string(command.example)};
    for (std::string word; example >> word;) {
      const bool quoted = word.front() == '"';
      for (std::string more; quoted && word.back() != '"' && example >> more;) {
        word += " " + more;
      }
      words.push_back(word);
    }
    if (words.empty()) {
      continue;
    }
    ASSERT_GE(words.size(), 2U);
    EXPECT_EQ(words[0], "tessera");
    std::vector<const char*> args;
    std::transform(words.begin() + 1, words.end(), std::back_inserter(args), [](const auto& w) { return w.c_str(); });
    const auto flags = parse_flags(tessera_flags(), args);
    EXPECT_TRUE(flags.ok()) << flags.status().message();
    EXPECT_EQ(args[0], command.name);
  }
}

// Command lines as users of llama.cpp type them.
TEST(FlagTable, FamiliarNamesWork) {
  const char* args[] = {"run",     "-m",     "m.gguf", "-p",          "hi",  "-n",   "16",   "-c",   "0",
                        "-b",      "64",     "-ub",    "32",          "-t",  "2",    "-ctk", "q8_0", "-ctv",
                        "q8_0",    "-sm",    "row",    "-ts",         "3,1", "-dev", "none", "-ngl", "99",
                        "-no-cnv", "--temp", "0",      "--n-predict", "17",  "-fa",  "on",   "-s",   "-1"};
  const auto flags = parse_flags(tessera_flags(), args);
  ASSERT_TRUE(flags.ok()) << flags.status().message();
  EXPECT_EQ(flags->get_int("predict"), 17);
  EXPECT_EQ(flags->get_string("split-mode"), "tensor");
  EXPECT_EQ(flags->get_string("cache-type-k"), "q8_0");
  EXPECT_THAT(flags->get_float_list("tensor-split"), ElementsAre(3.0, 1.0));
  EXPECT_FALSE(flags->get_bool("conversation"));
  EXPECT_TRUE(flags->given("conversation"));
  EXPECT_THAT(flags->notes(), ElementsAre(HasSubstr("row is called tensor"), HasSubstr("-ngl has no effect"),
                                          HasSubstr("-fa has no effect")));
}

TEST(FlagTable, ReferencePageIsCurrent) {
  std::ifstream file("docs/flags.md");  // tests run from the root of the repository
  ASSERT_TRUE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), help_markdown(tessera_flags())) << "run: build/tessera help --markdown > docs/flags.md";
}

}  // namespace
}  // namespace tessera

#include "flag_table.h"

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/cache_types.h"

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

// bench takes lists of them, which are texts.
TEST(FlagTable, BenchSaysEveryCacheType) {
  const auto& rows = tessera_flags().flags;
  const auto row =
      std::ranges::find_if(rows, [](const FlagRow& r) { return r.name == "cache-type-k" && r.commands == "bench"; });
  ASSERT_NE(row, rows.end());
  std::istringstream names{std::string(kCacheTypeNames)};
  for (std::string name; names >> name;) {
    EXPECT_THAT(std::string(row->help), HasSubstr(name));
  }
}

// Of a server's command line, what has to change is told in one go, and the rest is no mistake.
TEST(FlagTable, ForeignCommandLineIsAnsweredWhole) {
  std::istringstream words(
      "serve -hf ggml-org/x-GGUF:Q8_0 --mmproj p.gguf -ngl 99 -fa on --no-mmap --mlock -md d.gguf -ngld 99 --draft 8 "
      "--lora l.gguf -c 0 -ub 256 -ctk q8_0 -ctv q8_0 -cb --jinja --chat-template chatml --reasoning-format none "
      "--slots --no-webui --metrics --props --no-warmup --check-tensors -gan 4 --defrag-thold 0.1 -nkvo -dev none "
      "--numa distribute -tb 4 --pooling mean --embedding --rerank -a x --log-file f -lv 3 --offline --yarn-ext-factor "
      "-1 --override-kv a=int:1 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768");
  const std::vector<std::string> typed(std::istream_iterator<std::string>(words), {});
  std::vector<const char*> args;
  std::ranges::transform(typed, std::back_inserter(args), &std::string::c_str);
  const Status status = parse_flags(tessera_flags(), args).status();
  std::istringstream lines(status.message());
  std::vector<std::string> flags;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.starts_with("flag ")) << line;
    flags.push_back(line.substr(5, line.find_first_of(" :", 5) - 5));
  }
  EXPECT_THAT(flags, ElementsAre("-hf", "--mmproj", "-md", "-ngld", "--draft", "--lora", "--props", "--check-tensors",
                                 "-gan", "--rerank", "--log-file", "--yarn-ext-factor"));
  EXPECT_THAT(status.message(), HasSubstr("flag -hf: tessera has none like it: no network"));
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

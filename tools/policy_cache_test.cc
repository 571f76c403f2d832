#include "policy_cache.h"

#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/files.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PolicyCache : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "/policy_cacheXXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder + "/new/split-policy.json";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::optional<SplitMeasures> read(const std::string& key) {
    return read_policy_cache(path_, key, Log([&](LogLevel, std::string_view m) { said_.emplace_back(m); }, {}));
  }

  std::string folder_;
  std::string path_;
  std::vector<std::string> said_;
};

SplitMeasures measures(double speed) {
  SplitMeasures m;
  m.splits[0] = {"layer", {{128, speed}, {512, 2 * speed}}, {{1, 3.25}}};
  m.splits[1] = {"tensor", {{128, speed / 2}, {512, speed}}, {{1, 4.5}}};
  m.switch_s = {0.125, 0.25};
  return m;
}

TEST_F(PolicyCache, KeepsOneEntryForEachKey) {
  EXPECT_FALSE(read("a"));
  ASSERT_TRUE(write_policy_cache(path_, "a", measures(100)).ok());
  ASSERT_TRUE(write_policy_cache(path_, "b\n\"ü\xff", measures(7)).ok());
  ASSERT_TRUE(write_policy_cache(path_, "a", measures(200)).ok());
  const auto a = read("a");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->splits[0].split_mode, "layer");
  EXPECT_EQ(a->splits[0].prefill[1].n, 512);
  EXPECT_EQ(a->splits[0].prefill[1].tokens_per_s, 400);
  EXPECT_EQ(a->splits[1].generation[0].tokens_per_s, 4.5);
  EXPECT_THAT(a->switch_s, ElementsAre(0.125, 0.25));
  EXPECT_FALSE(read("c"));
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(PolicyCache, WhatMakesNoSenseIsAbsent) {
  ASSERT_TRUE(write_policy_cache(path_, "a", measures(100)).ok());
  const std::string good = read_file(path_, 1 << 20).value();
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"layer", "diagonal"},   {"3.25", "0"},
      {"3.25", "-1"},          {"3.25", "1e300"},
      {"3.25", "\"fast\""},    {"512", "1.5"},
      {"512", "128"},          {"512", "-512"},
      {"0.25", "null"},        {"\"switch_s\"", "\"other\""},
      {"0.125", "[0.125]"},    {"\"splits\"", "\"\""},
      {"\"prefill\"", "\"x\""}};
  for (const auto& [from, to] : changes) {
    std::string bad = good;
    const size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    ASSERT_TRUE(write_file(path_, bad).ok());
    EXPECT_FALSE(read("a")) << from << " -> " << to;
  }
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(PolicyCache, AFileThatIsNoneIsSaidAndReplaced) {
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
  for (const std::string text : {"", "{", "[]", "7", "{\"version\": 2, \"entries\": {}}", "{\"version\": 1}",
                                 "{\"version\": 1, \"entries\": []}"}) {
    said_.clear();
    ASSERT_TRUE(write_file(path_, text).ok());
    EXPECT_FALSE(read("a"));
    EXPECT_THAT(said_, ElementsAre(HasSubstr("is no cache of speeds"))) << text;
    ASSERT_TRUE(write_policy_cache(path_, "a", measures(100)).ok());
    EXPECT_TRUE(read("a")) << text;
  }
}

TEST_F(PolicyCache, WithoutAPlaceNothingIsKept) {
  path_.clear();
  EXPECT_TRUE(write_policy_cache(path_, "a", measures(100)).ok());
  EXPECT_FALSE(read("a"));
  path_ = folder_ + "/file";
  ASSERT_TRUE(write_file(path_, "").ok());
  path_ += "/below/a/file.json";
  EXPECT_FALSE(write_policy_cache(path_, "a", measures(100)).ok());
}

}  // namespace
}  // namespace tessera

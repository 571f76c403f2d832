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

  std::optional<PolicyEntry> read(const std::string& key) {
    return read_policy_cache(path_, key, Log([&](LogLevel, std::string_view m) { said_.emplace_back(m); }, {}));
  }

  std::string folder_;
  std::string path_;
  std::vector<std::string> said_;
};

PolicyEntry measures(double speed) {
  SplitMeasures m;
  m.splits[0] = {"layer", {{128, speed}, {512, 2 * speed}}, {{1, 3.25}}};
  m.splits[1] = {"tensor", {{128, speed / 2}, {512, speed}}, {{1, 4.5}}};
  m.switch_s = {0.125, 0.25};
  return {m, 1'700'000'000};
}

TEST_F(PolicyCache, KeepsOneEntryForEachKey) {
  EXPECT_FALSE(read("a"));
  ASSERT_TRUE(write_policy_cache(path_, "a", measures(100)).ok());
  ASSERT_TRUE(write_policy_cache(path_, "b\n\"ü\xff", measures(7)).ok());
  ASSERT_TRUE(write_policy_cache(path_, "a", measures(200)).ok());
  const auto a = read("a");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->measures.splits[0].split_mode, "layer");
  EXPECT_EQ(a->measures.splits[0].prefill[1].n, 512);
  EXPECT_EQ(a->measures.splits[0].prefill[1].tokens_per_s, 400);
  EXPECT_EQ(a->measures.splits[1].generation[0].tokens_per_s, 4.5);
  EXPECT_THAT(a->measures.switch_s, ElementsAre(0.125, 0.25));
  EXPECT_EQ(a->made_s, 1'700'000'000);
  EXPECT_FALSE(read("c"));
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(PolicyCache, EntriesAreOutOfDateAfterADay) {
  const PolicyEntry entry = measures(100);
  EXPECT_FALSE(is_out_of_date(entry, *entry.made_s));
  EXPECT_FALSE(is_out_of_date(entry, *entry.made_s + 24 * 3600));
  EXPECT_TRUE(is_out_of_date(entry, *entry.made_s + 24 * 3600 + 1));
  EXPECT_TRUE(is_out_of_date(entry, *entry.made_s - 1)) << "the clock has been set back";
  EXPECT_FALSE(is_out_of_date({entry.measures}, *entry.made_s + 24 * 3600 + 1)) << "somebody's own";
  ASSERT_TRUE(write_policy_cache(path_, "own", {entry.measures}).ok());
  EXPECT_EQ(read("own")->made_s, std::nullopt);
}

TEST_F(PolicyCache, ASpeedIsAnotherWhereItDiffersByMoreThanAQuarter) {
  EXPECT_FALSE(is_another_speed(100, 100));
  EXPECT_FALSE(is_another_speed(125, 100));
  EXPECT_FALSE(is_another_speed(100, 125));
  EXPECT_TRUE(is_another_speed(126, 100));
  EXPECT_TRUE(is_another_speed(100, 126));
}

TEST_F(PolicyCache, WhatMakesNoSenseIsAbsent) {
  ASSERT_TRUE(write_policy_cache(path_, "a", measures(100)).ok());
  const std::string good = read_file(path_, 1 << 20).value();
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"layer", "diagonal"},    {"3.25", "0"},
      {"3.25", "-1"},           {"3.25", "1e300"},
      {"3.25", "\"fast\""},     {"512", "1.5"},
      {"512", "128"},           {"512", "-512"},
      {"0.25", "null"},         {"\"switch_s\"", "\"other\""},
      {"0.125", "[0.125]"},     {"\"splits\"", "\"\""},
      {"\"prefill\"", "\"x\""}, {"1700000000", "-1"},
      {"1700000000", "\"now\""}};
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
  for (const std::string text : {"", "{", "[]", "7", "{\"version\": 1, \"entries\": {}}", "{\"version\": 2}",
                                 "{\"version\": 2, \"entries\": []}"}) {
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

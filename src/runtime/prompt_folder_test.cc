// Files of kept states: written, found again, limited; what is damaged or foreign.

#include "runtime/prompt_folder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StateShape shape(uint8_t model = 1, int64_t window = 0) {
  StateShape shape;
  shape.fingerprint = {model, 2, 3, 4};
  shape.n_vocab = 1000;
  shape.layers = {{1, 4, 4, 0}, {1, 4, 4, window}};
  return shape;
}

StateBytes saved(const StateShape& shape, const std::vector<int32_t>& tokens, int64_t first = 0) {
  StateContent content;
  content.whole = false;
  content.sequences = {{0, tokens, {{0}, {first}}}};
  plan_state(shape, content);
  StateBytes bytes = allocate_state(content.n_bytes).value();
  std::ranges::fill(bytes.span(), std::byte{7});
  write_state(shape, content, bytes.span());
  seal_state(bytes.span());
  return bytes;
}

class PromptFolderTest : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(fs::path(path_).parent_path()); }

  PromptFolder open(const StateShape& of, uint64_t max_bytes = 1 << 20) {
    auto folder = PromptFolder::open(path_, of, max_bytes);
    EXPECT_TRUE(folder.ok()) << folder.status().message();
    return std::move(folder).value();
  }
  // Its time of change lies so far back.
  void age(const std::string& name, std::chrono::minutes by) {
    fs::last_write_time(path_ + "/" + name, fs::file_time_type::clock::now() - by);
  }
  std::vector<std::string> names() {
    std::vector<std::string> result;
    for (const auto& file : fs::directory_iterator(path_)) {
      result.push_back(file.path().filename().string());
    }
    std::ranges::sort(result);
    return result;
  }

  const std::string path_ = ::testing::TempDir() + "prompt_folder_test." + std::to_string(getpid()) + "/below";
  std::vector<std::string> warnings_;
  const Log log_{[this](LogLevel, std::string_view text) { warnings_.emplace_back(text); }, LogLevel::kWarning};
};

TEST_F(PromptFolderTest, WhatIsWrittenIsFoundWithItsOutline) {
  const StateShape windowed = shape(1, 8);
  const std::vector<int32_t> tokens(100, 5);
  const StateBytes bytes = saved(windowed, tokens, 64);
  const PromptFolder folder = open(windowed);
  const auto name = folder.write({tokens}, bytes);
  ASSERT_TRUE(name.ok()) << name.status().message();
  const auto found = open(windowed).scan(log_);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, name.value());
  EXPECT_EQ(found[0].n_bytes, bytes.n_bytes);
  EXPECT_EQ(found[0].outline.tokens, tokens);
  EXPECT_EQ(found[0].outline.least_length, 64 + 8 - 1);
  EXPECT_FALSE(found[0].outline.recurrent);
  const auto read = folder.read(*name, bytes.n_bytes);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(std::ranges::equal(read->span(), bytes.span()));
  EXPECT_EQ(folder.read(*name, bytes.n_bytes + 1).status().code(), ErrorCode::kInvalidData);
  folder.remove(*name);
  EXPECT_EQ(folder.read(*name, bytes.n_bytes).status().code(), ErrorCode::kNotFound);
  EXPECT_THAT(open(windowed).scan(log_), IsEmpty());
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(PromptFolderTest, OthersFilesStayAndDamagedOnesGo) {
  const PromptFolder folder = open(shape());
  const std::vector<int32_t> tokens(50, 5);
  const std::string good = folder.write({tokens}, saved(shape(), tokens)).value();
  const std::string foreign = open(shape(2)).write({tokens}, saved(shape(2), tokens)).value();
  const std::string bad = good.substr(0, 33) + "0123456789abcdef.state";
  std::ofstream(path_ + "/" + bad) << "no state";
  std::ofstream(path_ + "/" + bad + ".12.partial") << "of a server that was killed";
  std::ofstream(path_ + "/" + good + ".12.partial") << "of one that writes";
  std::ofstream(path_ + "/mine.state") << "mine";
  age(bad + ".12.partial", std::chrono::minutes(90));
  const auto found = folder.scan(log_);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, good);
  std::vector<std::string> left = {good, foreign, good + ".12.partial", "mine.state"};
  std::ranges::sort(left);
  EXPECT_EQ(names(), left);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("no saved state")));
}

TEST_F(PromptFolderTest, TheLeastRecentlyUsedGoFirst) {
  const StateBytes bytes = saved(shape(), std::vector<int32_t>(50, 0));
  const PromptFolder folder = open(shape(), 3 * bytes.n_bytes);
  std::vector<std::string> files;
  for (int32_t i = 0; i < 5; ++i) {
    const std::vector<int32_t> tokens(50, i);
    files.push_back(folder.write({tokens}, saved(shape(), tokens)).value());
    age(files.back(), std::chrono::minutes(10 - i));
  }
  ASSERT_TRUE(folder.read(files[0], bytes.n_bytes).ok());  // a use
  const PromptFolder::Trimmed trimmed = folder.trim();
  EXPECT_THAT(trimmed.names, ElementsAre(files[1], files[2]));
  EXPECT_EQ(trimmed.n_bytes, 3 * bytes.n_bytes);
  EXPECT_THAT(folder.trim().names, IsEmpty());
  EXPECT_EQ(names().size(), 3U);
}

TEST_F(PromptFolderTest, AFolderThatCannotBeUsedIsAnError) {
  fs::create_directories(fs::path(path_).parent_path());
  std::ofstream(path_) << "a file";
  EXPECT_FALSE(PromptFolder::open(path_, shape(), 1).ok());
  EXPECT_FALSE(PromptFolder::open(path_ + "/below", shape(), 1).ok());
}

}  // namespace
}  // namespace tessera

#include "base/files.h"

#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class FilesTest : public testing::Test {
 protected:
  FilesTest() {
    std::string pattern = (fs::temp_directory_path() / "files_test_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~FilesTest() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

std::string text(const InputFile& file, uint64_t offset, uint64_t length) {
  std::string result(length, '?');
  const Status status = file.read_at(offset, std::as_writable_bytes(std::span(result)));
  EXPECT_TRUE(status.ok()) << status.message();
  return result;
}

TEST_F(FilesTest, AFileIsReadAtAnyPlace) {
  ASSERT_TRUE(write_file(path("a"), "hello").ok());
  auto file = InputFile::open(path("a"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->size(), 5U);
  EXPECT_EQ(text(*file, 0, 5), "hello");
  EXPECT_EQ(text(*file, 3, 2), "lo");
  EXPECT_EQ(text(*file, 5, 0), "");
  InputFile moved = std::move(file).value();
  InputFile other;
  EXPECT_EQ(other.size(), 0U);
  other = std::move(moved);
  EXPECT_EQ(text(other, 1, 3), "ell");
  EXPECT_EQ(other.path(), path("a"));
}

TEST_F(FilesTest, ErrorsNamePathAndReason) {
  const auto absent = InputFile::open(path("absent"));
  EXPECT_EQ(absent.status().code(), ErrorCode::kNotFound);
  EXPECT_THAT(absent.status().message(), AllOf(HasSubstr(path("absent")), HasSubstr("No such file")));
  const auto folder = InputFile::open(folder_.string());
  EXPECT_EQ(folder.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(folder.status().message(), HasSubstr("is a folder"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(InputFile::open(path("pipe")).status().message(), HasSubstr("a device or pipe"));  // and does not wait
  EXPECT_EQ(write_file(path("absent/file"), "x").code(), ErrorCode::kNotFound);
}

TEST_F(FilesTest, AdviceOnAnyRangeKeepsTheBytes) {
  const std::string content(10000, 'x');
  ASSERT_TRUE(write_file(path("a"), content).ok());
  const auto file = InputFile::open(path("a"));
  ASSERT_TRUE(file.ok());
  file->will_need(0, 10000);
  file->will_need(9999, 0);
  file->will_need(20000, 5);
  EXPECT_EQ(text(*file, 0, 10000), content);
}

// What a mapping could not do: the bytes that are gone are an error, the rest can be read.
TEST_F(FilesTest, ReadingBeyondANewEndIsAnError) {
  ASSERT_TRUE(write_file(path("a"), std::string(20000, 'x')).ok());
  const auto file = InputFile::open(path("a"));
  ASSERT_TRUE(file.ok());
  fs::resize_file(path("a"), 6000);
  std::string out(8000, '?');
  const Status status = file->read_at(4000, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(status.code(), ErrorCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("had 20000 bytes and now has 6000"));
  EXPECT_EQ(text(*file, 0, 6000), std::string(6000, 'x'));
}

TEST_F(FilesTest, AChangedSizeIsNoticed) {
  ASSERT_TRUE(write_file(path("a"), "0123456789").ok());
  const auto file = InputFile::open(path("a"));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->check_unchanged().ok());
  fs::resize_file(path("a"), 3);
  EXPECT_EQ(file->check_unchanged().code(), ErrorCode::kIo);
  EXPECT_THAT(file->check_unchanged().message(), HasSubstr("had 10 bytes and now has 3"));
}

TEST_F(FilesTest, ReadFileKeepsToItsLimit) {
  ASSERT_TRUE(write_file(path("a"), std::string("a\0b", 3)).ok());
  EXPECT_EQ(read_file(path("a"), 3).value(), std::string("a\0b", 3));
  EXPECT_EQ(read_file(path("a"), 2).status().code(), ErrorCode::kDoesNotFit);
}

TEST_F(FilesTest, WhatIsNoFileIsWrittenToAndStays) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const int pipe = open(path("pipe").c_str(), O_RDWR);  // both ends, so that nobody waits for the other
  ASSERT_GE(pipe, 0);
  EXPECT_TRUE(write_file(path("pipe"), "hello").ok());
  char read_back[5] = {};
  EXPECT_EQ(read(pipe, read_back, sizeof(read_back)), 5);
  EXPECT_EQ(std::string_view(read_back, 5), "hello");
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  close(pipe);

  ASSERT_TRUE(write_file(path("a"), "old").ok());
  fs::create_symlink("a", path("link"));
  EXPECT_TRUE(write_file(path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_file(path("a"), 100).value(), "new");
  EXPECT_EQ(write_file(folder_.string(), "x").code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 3) << "nothing else is left";
}

TEST_F(FilesTest, AFileIsReplacedOnlyWhenItIsComplete) {
  ASSERT_TRUE(write_file(path("a"), "old").ok());
  {
    auto writer = FileWriter::create(path("a"));
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->append(std::as_bytes(std::span("new", 3))).ok());
  }
  EXPECT_EQ(read_file(path("a"), 100).value(), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1) << "nothing else is left";
  ASSERT_TRUE(write_file(path("a"), "new").ok());
  EXPECT_EQ(read_file(path("a"), 100).value(), "new");
}

}  // namespace
}  // namespace tessera

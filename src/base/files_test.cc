#include "base/files.h"

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

std::string_view text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST_F(FilesTest, AFileIsMappedWhole) {
  ASSERT_TRUE(write_file(path("a"), "hello").ok());
  auto file = MappedFile::open(path("a"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->size(), 5U);
  EXPECT_EQ(text(*file), "hello");
  const std::byte* at = file->bytes().data();
  MappedFile moved = std::move(file).value();
  EXPECT_EQ(moved.bytes().data(), at);
  MappedFile other;
  EXPECT_TRUE(other.bytes().empty());
  other = std::move(moved);
  EXPECT_EQ(text(other), "hello");
  EXPECT_EQ(other.path(), path("a"));
}

TEST_F(FilesTest, AnEmptyFileIsAnEmptyMapping) {
  ASSERT_TRUE(write_file(path("empty"), "").ok());
  const auto file = MappedFile::open(path("empty"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(file->bytes().empty());
  file->advise(Access::kWillNeed);
  EXPECT_TRUE(file->check_unchanged().ok());
}

TEST_F(FilesTest, ErrorsNamePathAndReason) {
  const auto absent = MappedFile::open(path("absent"));
  EXPECT_EQ(absent.status().code(), ErrorCode::kNotFound);
  EXPECT_THAT(absent.status().message(), AllOf(HasSubstr(path("absent")), HasSubstr("No such file")));
  const auto folder = MappedFile::open(folder_.string());
  EXPECT_EQ(folder.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(folder.status().message(), HasSubstr("is a folder"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(MappedFile::open(path("pipe")).status().message(), HasSubstr("a device or pipe"));  // and does not wait
  EXPECT_EQ(write_file(path("absent/file"), "x").code(), ErrorCode::kNotFound);
}

TEST_F(FilesTest, AdviceOnAnyRangeKeepsTheBytes) {
  const std::string content(10000, 'x');
  ASSERT_TRUE(write_file(path("a"), content).ok());
  const auto file = MappedFile::open(path("a"));
  ASSERT_TRUE(file.ok());
  for (const Access access : {Access::kSequential, Access::kWillNeed, Access::kDontNeed}) {
    file->advise(access);
    file->advise(access, 5000, 1);
    file->advise(access, 9999, ~0ULL);
    file->advise(access, 20000, 5);
    EXPECT_EQ(text(*file), content);
  }
}

TEST_F(FilesTest, AChangedSizeIsNoticed) {
  ASSERT_TRUE(write_file(path("a"), "0123456789").ok());
  const auto file = MappedFile::open(path("a"));
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

TEST_F(FilesTest, AFileIsReplacedOnlyWhenItIsComplete) {
  ASSERT_TRUE(write_file(path("a"), "old").ok());
  {
    auto writer = FileWriter::create(path("a"));
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->append(std::as_bytes(std::span("new", 3))).ok());
  }
  EXPECT_EQ(read_file(path("a"), 100).value(), "old");
  EXPECT_FALSE(fs::exists(path("a.partial")));
  ASSERT_TRUE(write_file(path("a"), "new").ok());
  EXPECT_EQ(read_file(path("a"), 100).value(), "new");
}

}  // namespace
}  // namespace tessera

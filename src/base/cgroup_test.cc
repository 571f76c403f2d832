#include "base/cgroup.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;

TEST(Cgroup, FoldersLeadFromTheProcessToTheRoot) {
  EXPECT_THAT(cgroup_folders("0::/a.slice/b c.service\n", "/r"),
              ElementsAre("/r/a.slice/b c.service", "/r/a.slice", "/r"));
  EXPECT_THAT(cgroup_folders("4:memory:/m\n0::/a\n", "/r"), ElementsAre("/r/a", "/r"));  // both versions are mounted
  EXPECT_THAT(cgroup_folders("0::/\n", "/r"), ElementsAre("/r"));
  EXPECT_THAT(cgroup_folders("4:memory:/m", "/r"), ElementsAre("/r"));
  EXPECT_THAT(cgroup_folders("", "/r"), ElementsAre("/r"));
  EXPECT_THAT(cgroup_folders("0::what", "/r"), ElementsAre("/r"));
}

class CgroupLimits : public testing::Test {
 protected:
  CgroupLimits() { std::filesystem::create_directories(root_ + "/a/b"); }
  ~CgroupLimits() override { std::filesystem::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const { std::ofstream(root_ + "/" + file) << text; }

  std::string root_ = std::filesystem::temp_directory_path() / ("cgroup_test_" + std::to_string(getpid()));
  std::vector<std::string> folders_ = cgroup_folders("0::/a/b\n", root_);
};

TEST_F(CgroupLimits, NothingSaysNothing) {
  EXPECT_TRUE(std::isinf(cgroup_cpus(folders_)));
  EXPECT_EQ(cgroup_memory(folders_).limit_bytes, UINT64_MAX);
  write("cpu.max", "max 100000\n");
  write("a/b/cpu.max", "what");
  write("a/memory.max", "max\n");
  EXPECT_TRUE(std::isinf(cgroup_cpus(folders_)));
  EXPECT_EQ(cgroup_memory(folders_).free_bytes, UINT64_MAX);
}

TEST_F(CgroupLimits, TheTightestGroupCounts) {
  write("a/cpu.max", "150000 100000\n");
  write("a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_cpus(folders_), 1.5);
  write("memory.max", "9000\n");
  write("a/memory.max", "8000\n");
  write("a/memory.current", "3000\n");
  write("a/b/memory.max", "6000\n");
  write("a/b/memory.current", "500\n");
  EXPECT_EQ(cgroup_memory(folders_).limit_bytes, 6000U);
  EXPECT_EQ(cgroup_memory(folders_).free_bytes, 5000U);  // of a, which others are in, too
  write("a/memory.current", "8001\n");
  EXPECT_EQ(cgroup_memory(folders_).free_bytes, 0U);
}

}  // namespace
}  // namespace tessera

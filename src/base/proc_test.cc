#include "base/proc.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Proc, ValuesOfLines) {
  const std::string_view meminfo = "MemTotal:       24682016 kB\nMemAvailable:    23701 kB\nSwapFree: 0 kB";
  EXPECT_EQ(proc_bytes(meminfo, "MemTotal"), uint64_t{24682016} * 1024);
  EXPECT_EQ(proc_bytes(meminfo, "MemAvailable"), uint64_t{23701} * 1024);
  EXPECT_EQ(proc_bytes(meminfo, "Mem"), 0U);
  EXPECT_EQ(proc_bytes("", "MemTotal"), 0U);
  EXPECT_EQ(proc_value("Name:\ta b \nName: c\n", "Name"), "a b");
}

TEST(Proc, NumbersAndTexts) {
  EXPECT_EQ(proc_number("4096\n"), 4096U);
  EXPECT_EQ(proc_number("max\n"), 0U);
  EXPECT_EQ(proc_text("/proc/no such file"), "");
  EXPECT_NE(proc_bytes(proc_text("/proc/self/status"), "VmRSS"), 0U);
}

}  // namespace
}  // namespace tessera

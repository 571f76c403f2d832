#include "link_flag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using testing::HasSubstr;

TEST(SimLink, RatesAndTimes) {
  const auto link = parse_sim_link("12GB/s:10us");
  ASSERT_TRUE(link.ok()) << link.status().message();
  EXPECT_DOUBLE_EQ(link->bytes_per_second, 12e9);
  EXPECT_DOUBLE_EQ(link->seconds_per_copy, 10e-6);
  EXPECT_DOUBLE_EQ(link->local_bytes_per_second, 12e9);
  EXPECT_DOUBLE_EQ(link->local_seconds_per_copy, 10e-6);

  const auto two = parse_sim_link("25GiB/s:0.5ms,1.5TB/s:300ns");
  ASSERT_TRUE(two.ok()) << two.status().message();
  EXPECT_DOUBLE_EQ(two->bytes_per_second, 25.0 * (1 << 30));
  EXPECT_DOUBLE_EQ(two->seconds_per_copy, 0.5e-3);
  EXPECT_DOUBLE_EQ(two->local_bytes_per_second, 1.5e12);
  EXPECT_DOUBLE_EQ(two->local_seconds_per_copy, 300e-9);

  const auto bare = parse_sim_link("900MB/s");
  ASSERT_TRUE(bare.ok());
  EXPECT_DOUBLE_EQ(bare->seconds_per_copy, 0);
}

TEST(SimLink, WhatIsNoLinkIsNamed) {
  for (const char* text : {"", "12", "12GB", "GB/s:10us", "0GB/s:10us", "-12GB/s:10us", "12gb/s:10us", "inf", "nanGB/s",
                           "1e400GB/s:1us", "12GB/s 10us", "12GB/s:10us,", "12 GB/s:10us"}) {
    const auto link = parse_sim_link(text);
    ASSERT_FALSE(link.ok()) << text;
    EXPECT_EQ(link.status().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(link.status().message(), HasSubstr("is no rate above 0")) << text;
  }
  for (const char* text : {"12GB/s:", "12GB/s:10", "12GB/s:-1us", "12GB/s:10min", "12GB/s:us", "1GB/s:1us:2us"}) {
    const auto link = parse_sim_link(text);
    ASSERT_FALSE(link.ok()) << text;
    EXPECT_THAT(link.status().message(), HasSubstr("is no time")) << text;
  }
}

}  // namespace
}  // namespace tessera

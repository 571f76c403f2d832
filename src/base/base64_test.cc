#include "base/base64.h"

#include <gtest/gtest.h>
#include <string_view>

namespace tessera {
namespace {

TEST(Base64, AllPaddings) {  // RFC 4648, test vectors
  const auto of = [](std::string_view text) { return base64(std::as_bytes(std::span(text.data(), text.size()))); };
  EXPECT_EQ(of(""), "");
  EXPECT_EQ(of("f"), "Zg==");
  EXPECT_EQ(of("fo"), "Zm8=");
  EXPECT_EQ(of("foo"), "Zm9v");
  EXPECT_EQ(of("foobar"), "Zm9vYmFy");
  EXPECT_EQ(of("\xff\xff\xfe"), "///+");
}

}  // namespace
}  // namespace tessera

#include <gtest/gtest.h>

#include "server/http_server.h"

namespace tessera {
namespace {

TEST(HttpRequest, EscapesAreDecoded) {
  EXPECT_EQ(decode_percent("a%20b%2Fc+d", false), "a b/c+d");
  EXPECT_EQ(decode_percent("a+b", true), "a b");
  EXPECT_EQ(decode_percent("100%", false), "100%");
  EXPECT_EQ(decode_percent("%2", false), "%2");
  EXPECT_EQ(decode_percent("%zz%41", false), "%zzA");
}

TEST(HttpRequest, HeadersAndParameters) {
  HttpRequest request;
  request.headers = {{"Content-Type", "a"}, {"X-Api-Key", "k"}};
  request.query = "action=save&name=a%26b&empty=&flag";
  EXPECT_EQ(request.header("x-api-KEY"), "k");
  EXPECT_EQ(request.header("x-api"), "");
  EXPECT_EQ(request.query_value("action"), "save");
  EXPECT_EQ(request.query_value("name"), "a&b");
  EXPECT_EQ(request.query_value("empty"), "");
  EXPECT_EQ(request.query_value("flag"), "");
  EXPECT_EQ(request.query_value("missing"), "");
}

}  // namespace
}  // namespace tessera

// What handlers do to the server; what clients do to it, tests/server_limits_test.py and fuzz/http_fuzz.cc try.

#include "server/http_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "server/http_test_util.h"

namespace tessera {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void fail(const std::string& path) {
  if (path == "/memory") {
    throw std::bad_alloc();
  }
  if (path == "/error") {
    throw std::runtime_error("a handler's mistake");
  }
  throw 5;
}

TEST(HttpServer, WhatHandlersThrowIsTheirRequestsFailure) {
  HttpServerOptions options;
  options.port = 0;
  options.n_handlers = 1;  // which is there for the next request
  auto server = HttpServer::start(
      options,
      [](const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
        if (request.path == "/good") {
          exchange->reply(200, "text/plain", "good");
        } else if (request.query == "later") {
          exchange->go_on([path = request.path, exchange] { fail(path); });
        } else if (request.query == "stream") {
          exchange->begin_events(std::chrono::seconds(0));
          (void)exchange->send_events("data: 1\n\n");
          fail(request.path);
        } else {
          fail(request.path);
        }
      },
      [](int status, std::string_view message) { return fmt::format("{}: {}", status, message); });
  ASSERT_TRUE(server.ok()) << server.status().message();
  const std::string& url = (*server)->addresses().front();
  const std::vector<std::pair<std::string, std::string>> thrown = {
      {"/memory", "no memory"}, {"/error", "a handler's mistake"}, {"/5", "of an unknown kind"}};
  for (const char* when : {"", "?later"}) {
    for (const auto& [path, what] : thrown) {
      const std::string reply = http_get(url, path + when);
      EXPECT_THAT(reply, StartsWith("HTTP/1.1 500 ")) << path << when;
      EXPECT_THAT(reply, HasSubstr(what)) << path << when;
    }
  }
  const std::string stream = http_get(url, "/error?stream");
  EXPECT_THAT(stream, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(stream, EndsWith("0\r\n\r\n"));
  EXPECT_THAT(http_get(url, "/good"), EndsWith("good"));
}

}  // namespace
}  // namespace tessera

// What handlers do to the server; what clients do to it, tests/server_limits_test.py and fuzz/http_fuzz.cc try.

#include "server/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <new>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace tessera {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The whole reply to a GET; the connection is closed behind it.
std::string get(const std::string& url, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const std::string request = fmt::format("GET {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", path);
  EXPECT_EQ(send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  std::string reply;
  char part[4096];
  for (ssize_t n = 0; (n = recv(fd, part, sizeof part, 0)) > 0;) {
    reply.append(part, static_cast<size_t>(n));
  }
  close(fd);
  return reply;
}

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
      const std::string reply = get(url, path + when);
      EXPECT_THAT(reply, StartsWith("HTTP/1.1 500 ")) << path << when;
      EXPECT_THAT(reply, HasSubstr(what)) << path << when;
    }
  }
  const std::string stream = get(url, "/error?stream");
  EXPECT_THAT(stream, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(stream, EndsWith("0\r\n\r\n"));
  EXPECT_THAT(get(url, "/good"), EndsWith("good"));
}

}  // namespace
}  // namespace tessera

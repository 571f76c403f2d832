// What handlers do to the server; what clients do to it, tests/server_limits_test.py and fuzz/http_fuzz.cc try.

#include "server/http_server.h"

#include <fmt/format.h>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "server/http_test_util.h"

namespace tessera {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string plain_error(int status, std::string_view message) {
  return fmt::format("{}: {}", status, message);
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
      plain_error);
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

TEST(HttpServer, AHeadOfAStreamHasNoBody) {
  HttpServerOptions options;
  options.port = 0;
  auto server = HttpServer::start(
      options,
      [](const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
        if (request.path == "/good") {
          exchange->reply(200, "text/plain", "good");
        } else {
          exchange->begin_events(std::chrono::seconds(1));
          EXPECT_TRUE(exchange->send_events("data: 1\n\n"));
          exchange->end_events();
        }
      },
      plain_error);
  ASSERT_TRUE(server.ok()) << server.status().message();
  const std::string reply = http_read(http_send((*server)->addresses().front(),
                                                "HEAD /events HTTP/1.1\r\nHost: a\r\n\r\n"
                                                "GET /good HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
  const size_t end = reply.find("\r\n\r\n");
  ASSERT_NE(end, std::string::npos) << reply;
  EXPECT_THAT(reply.substr(end + 4), StartsWith("HTTP/1.1 200 ")) << reply;
  EXPECT_THAT(reply, EndsWith("good"));
}

// A client may close its sending half and still read. The io thread is held while that and the answer reach it, so that
// it looks at the first before the second.
TEST(HttpServer, AnAnswerMadeAsTheClientStopsSendingArrives) {
  HttpServerOptions options;
  options.port = 0;
  options.n_handlers = 3;
  std::promise<void> is_held[2];
  std::promise<void> release[2];
  std::latch begun(3);
  std::promise<void> may_answer;
  std::mutex mutex;
  std::vector<std::shared_ptr<HttpExchange>> kept;
  std::weak_ptr<HttpExchange> answered;
  auto server = HttpServer::start(
      options,
      [&](const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) {
        if (request.path == "/answer") {
          answered = exchange;
          begun.count_down();
          may_answer.get_future().wait();
          exchange->reply(200, "text/plain", "good");
          return;
        }
        const size_t i = request.path == "/first" ? 0 : 1;
        exchange->on_gone([&, i] {
          is_held[i].set_value();
          release[i].get_future().wait();
        });
        const std::lock_guard lock(mutex);
        kept.push_back(std::move(exchange));
        begun.count_down();
      },
      plain_error);
  ASSERT_TRUE(server.ok()) << server.status().message();
  const auto request = [&](const std::string& path) {
    return http_send((*server)->addresses().front(), "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
  };
  const int first = request("/first");
  const int second = request("/second");
  const int answer = request("/answer");
  begun.wait();
  shutdown(first, SHUT_WR);
  is_held[0].get_future().wait();
  shutdown(second, SHUT_WR);
  shutdown(answer, SHUT_WR);  // found together with the second
  release[0].set_value();
  is_held[1].get_future().wait();
  may_answer.set_value();
  while (!answered.expired()) {
    std::this_thread::yield();
  }
  release[1].set_value();
  EXPECT_THAT(http_read(answer), EndsWith("good"));
  kept.clear();
  EXPECT_THAT(http_read(first), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(http_read(second), StartsWith("HTTP/1.1 500 "));
}

// The same where the server itself has to answer, for a handler that did not.
TEST(HttpServer, AnAnswerMadeForAHandlerArrivesAsTheClientStopsSending) {
  HttpServerOptions options;
  options.port = 0;
  options.n_handlers = 2;
  std::promise<void> is_asked;
  std::promise<void> release;
  auto server = HttpServer::start(
      options,
      [](const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
        if (request.path == "/good") {
          exchange->reply(200, "text/plain", "good");
        }
      },
      [&](int status, std::string_view message) {
        is_asked.set_value();
        release.get_future().wait();
        return plain_error(status, message);
      });
  ASSERT_TRUE(server.ok()) << server.status().message();
  const std::string& url = (*server)->addresses().front();
  const int none = http_send(url, "GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
  is_asked.get_future().wait();
  shutdown(none, SHUT_WR);
  for (int i = 0; i < 2; ++i) {  // behind these the end of its input was seen
    EXPECT_THAT(http_get(url, "/good"), EndsWith("good"));
  }
  release.set_value();
  EXPECT_THAT(http_read(none), StartsWith("HTTP/1.1 500 "));
}

}  // namespace
}  // namespace tessera

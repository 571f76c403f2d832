// An answer whose making ran out of memory: nothing of it counts as sent, and the client gets a whole one after all.

#include <fmt/format.h>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <new>
#include <string>
#include <thread>

#include "server/http_server.h"
#include "server/http_test_util.h"
#include "tests/support/allocations.h"

namespace tessera {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

// Longer than what strings and the network library keep without allocating.
const std::string kText(5000, 'x');

// Answers a request with answer(exchange, failing): `failing` runs what it is given while one allocation fails, the
// first, second, third, … with each request, until none is left to fail; check(reply, failed) sees what the client got.
// On a thread of its own, as those of models are: the network's keep memory for another use.
template <typename Answer, typename Check>
void exhaust(const Answer& answer, const Check& check) {
  int n_before = 0;
  std::promise<bool> has_failed;  // told when the handler is through: the client may have its reply before
  HttpServerOptions options;
  options.port = 0;
  options.n_handlers = 1;
  auto server = HttpServer::start(
      options,
      [&](const HttpRequest& /*request*/, const std::shared_ptr<HttpExchange>& exchange) {
        bool failed = false;
        answer(*exchange, [&](const auto& step) {
          std::thread([&] {
            fail_allocations(n_before, 1);
            try {
              step();
            } catch (const std::bad_alloc&) {
            }
            failed = end_failing_allocations() > 0;
          }).join();
        });
        has_failed.set_value(failed);
      },
      [](int status, std::string_view message) { return fmt::format("{}: {}", status, message); });
  ASSERT_TRUE(server.ok()) << server.status().message();
  for (bool failed = true; failed && !::testing::Test::HasFailure(); ++n_before) {
    SCOPED_TRACE(fmt::format("after {} allocations", n_before));
    has_failed = {};
    const std::string reply = http_get((*server)->addresses().front(), "/");
    failed = has_failed.get_future().get();
    check(reply, failed);
  }
  EXPECT_GT(n_before, 1) << "nothing failed";
}

TEST(HttpMemory, AnotherReplyMayFollowOneThatFailed) {
  exhaust(
      [](HttpExchange& exchange, const auto& failing) {
        failing([&] { exchange.reply(200, "text/plain", kText, {{"X-Long", "of the first"}}); });
        exchange.reply(500, "text/plain", "short");
      },
      [](const std::string& reply, bool failed) {
        EXPECT_THAT(reply, StartsWith(failed ? "HTTP/1.1 500 " : "HTTP/1.1 200 "));
        EXPECT_THAT(reply, EndsWith(failed ? "\r\n\r\nshort" : "\r\n\r\n" + kText));
        EXPECT_EQ(reply.find("X-Long") == std::string::npos, failed);
      });
}

TEST(HttpMemory, StreamThatDidNotBeginIsAnsweredWhole) {
  exhaust(
      [](HttpExchange& exchange, const auto& failing) {
        failing([&] { exchange.begin_events(std::chrono::seconds(0)); });
        exchange.reply(500, "text/plain", "short");  // nothing where the stream has begun: it ends with the exchange
      },
      [](const std::string& reply, bool failed) {
        EXPECT_THAT(reply, StartsWith(failed ? "HTTP/1.1 500 " : "HTTP/1.1 200 "));
        EXPECT_THAT(reply, EndsWith(failed ? "\r\n\r\nshort" : "\r\n\r\n0\r\n\r\n"));
        EXPECT_EQ(reply.find("chunked") == std::string::npos, failed);
      });
}

TEST(HttpMemory, StreamEndsOnce) {
  exhaust(
      [](HttpExchange& exchange, const auto& failing) {
        exchange.begin_events(std::chrono::seconds(0));
        failing([&] { exchange.end_events(); });
      },
      [](const std::string& reply, bool /*failed*/) { EXPECT_THAT(reply, EndsWith("\r\n\r\n0\r\n\r\n")); });
}

TEST(HttpMemory, EventsAreSentWholeOrNotAtAll) {
  exhaust(
      [](HttpExchange& exchange, const auto& failing) {
        exchange.begin_events(std::chrono::seconds(0));
        failing([&] { (void)exchange.send_events(kText); });
        (void)exchange.send_events("data: 1\n\n");
      },
      [](const std::string& reply, bool failed) {
        const std::string events = failed ? "" : "1388\r\n" + kText + "\r\n";
        EXPECT_THAT(reply, EndsWith("\r\n\r\n" + events + "9\r\ndata: 1\n\n\r\n0\r\n\r\n"));
      });
}

}  // namespace
}  // namespace tessera

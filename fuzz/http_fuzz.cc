// libFuzzer target: bytes on a connection, sent in pieces, with the client's half closed behind them. A handler answers
// each request in the way its path asks for. Aborts when the server keeps such a connection open, sends what is no
// HTTP, or does not give every request that it handed over one whole answer.

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/http_server.h"

namespace {

using tessera::HttpExchange;
using tessera::HttpRequest;

constexpr int kPatienceMs = 30'000;  // for the server to close; only against hanging for ever
constexpr size_t kPauses = 16;       // of the client: each may cost its whole turn on a busy machine

// The methods of the requests that were handed over, since the last take(): one connection's, whose answers come in
// the same order.
class Calls {
 public:
  void add(const std::string& method) {
    const std::lock_guard lock(mutex_);
    methods_.push_back(method);
  }
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(methods_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> methods_;
};

Calls& calls() {
  static Calls kCalls;
  return kCalls;
}

// What may go wrong with an answer: none, whole, in events, late, twice, after the client has gone.
void answer(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
  const std::string value = request.query_value("x") + std::string(request.header("X")) + request.path;
  exchange->on_gone([] {});
  switch (value.empty() ? 0 : static_cast<unsigned char>(value.back()) % 6) {
    case 0: return;  // 500
    case 1: exchange->reply(200, "text/plain", request.body, {{"X", value}}); return;
    case 2:
      exchange->begin_events(std::chrono::seconds(1));
      exchange->send_events("data: " + std::to_string(request.body.size()) + "\n\n");
      exchange->end_events();
      exchange->end_events();
      return;
    case 3: exchange->begin_events(std::chrono::seconds(0)); return;  // ends with the exchange
    case 4:
      exchange->reply(204, "text/plain", "");
      exchange->reply(200, "text/plain", "too late");
      return;
    default:
      exchange->add_header("Y", value);
      std::thread([exchange] { exchange->reply(200, "text/plain", std::string(100'000, 'y')); }).detach();
  }
}

const std::string& socket_path() {
  static const std::string kPath = "/tmp/http_fuzz_" + std::to_string(getpid()) + ".sock";
  return kPath;
}

void start_server() {
  tessera::HttpServerOptions options;
  options.hosts = {socket_path()};
  options.n_handlers = 2;
  options.limits = {.body_bytes = 4096, .header_bytes = 2048, .n_connections = 8, .unread_bytes = 1U << 20};
  static auto server = tessera::HttpServer::start(
      options,
      [](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
        calls().add(request.method);
        answer(request, exchange);
      },
      [](int status, std::string_view message) { return std::to_string(status) + " " + std::string(message); });
  CHECK(server.ok());
  std::atexit([] { (*server)->stop(std::chrono::seconds(1)); });
}

int connected() {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  socket_path().copy(address.sun_path, sizeof address.sun_path - 1);
  CHECK(fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

// All that comes until the server closes.
std::string read_all(int fd) {
  std::string all;
  char part[65536];
  while (true) {
    pollfd wait = {.fd = fd, .events = POLLIN, .revents = 0};
    int n_ready = -1;
    do {
      n_ready = poll(&wait, 1, kPatienceMs);
    } while (n_ready < 0 && errno == EINTR);  // libFuzzer's alarm
    CHECK(n_ready == 1);
    const ssize_t n = recv(fd, part, sizeof part, 0);
    if (n <= 0) {
      return all;
    }
    all.append(part, static_cast<size_t>(n));
  }
}

// Takes `n` bytes, or those up to and with `end`, from the front. REQUIRES, or it aborts: they are there.
std::string_view take(std::string_view& text, size_t n) {
  CHECK(n <= text.size());
  const std::string_view front = text.substr(0, n);
  text.remove_prefix(n);
  return front;
}
std::string_view take_to(std::string_view& text, std::string_view end) {
  const size_t at = text.find(end);
  CHECK(at != std::string_view::npos);
  return take(text, at + end.size());
}

// The value of a header, if it is there. head: with its empty line.
std::optional<std::string_view> header_of(std::string_view head, std::string_view name) {
  const size_t at = head.find("\r\n" + std::string(name) + ": ");
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view value = head.substr(at + name.size() + 4);
  return value.substr(0, value.find("\r\n"));
}

size_t number(std::string_view digits, int base) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  CHECK(error == std::errc() && end == digits.data() + digits.size());
  return value;
}

void take_chunks(std::string_view& reply) {
  while (true) {
    const std::string_view line = take_to(reply, "\r\n");
    const size_t n = number(line.substr(0, line.size() - 2), 16);
    take(reply, n);
    CHECK(take(reply, 2) == "\r\n");
    if (n == 0) {
      return;
    }
  }
}

// Takes one answer from the front and returns its status.
size_t take_answer(std::string_view& reply, bool is_head) {
  const std::string_view head = take_to(reply, "\r\n\r\n");
  CHECK(head.starts_with("HTTP/1.1 "));
  const size_t status = number(head.substr(9, 3), 10);
  if (is_head || status == 100 || status == 204) {
    return status;
  }
  if (const auto length = header_of(head, "Content-Length")) {
    take(reply, number(*length, 10));
  } else if (header_of(head, "Transfer-Encoding")) {
    take_chunks(reply);
  } else {
    reply = {};  // up to the end of the connection
  }
  return status;
}

// An answer for each call, and perhaps one more to what was no request.
void check_answers(std::string_view reply, const std::vector<std::string>& methods) {
  size_t n = 0;
  while (!reply.empty()) {
    CHECK(n <= methods.size());
    if (take_answer(reply, n < methods.size() && methods[n] == "HEAD") != 100) {
      ++n;
    }
  }
  CHECK(n >= methods.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool kStarted = (start_server(), true);
  CHECK(kStarted);
  const int fd = connected();
  // The first byte says after how many bytes, if ever, the client pauses so that the server may read them.
  const size_t piece = size > 0 && data[0] < 128 ? data[0] + size_t{1} : size;
  size_t n = 0;
  for (size_t i = 1, n_pauses = 0; i < size; i += n, ++n_pauses) {
    n = n_pauses < kPauses ? std::min(piece, size - i) : size - i;
    if (send(fd, data + i, n, MSG_NOSIGNAL) != static_cast<ssize_t>(n)) {
      break;  // the server has refused it and closed
    }
    std::this_thread::yield();
  }
  shutdown(fd, SHUT_WR);
  const std::string reply = read_all(fd);
  close(fd);
  check_answers(reply, calls().take());
  return 0;
}

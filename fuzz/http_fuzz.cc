// libFuzzer target: bytes on a connection, sent in pieces, with the client's half closed behind them. A handler answers
// each request in the way its path asks for. Aborts when the server keeps such a connection open, sends what is no
// HTTP, or leaves a request without an answer.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "base/check.h"
#include "server/http_server.h"

namespace {

using tessera::HttpExchange;
using tessera::HttpRequest;

constexpr int kPatienceMs = 30'000;  // for the server to close; only against hanging for ever
constexpr size_t kPauses = 16;       // of the client: each may cost its whole turn on a busy machine

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
      options, [](HttpRequest request, std::shared_ptr<HttpExchange> exchange) { answer(request, exchange); },
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
  CHECK(reply.empty() || reply.starts_with("HTTP/1.1 "));
  return 0;
}

#pragma once
// HTTP/1.1 over TCP and unix sockets: connections, limits, timeouts, replies and server-sent events. Knows no model.
//
// One thread owns all sockets; requests are handed to a pool of handler threads as soon as they are whole. A handler
// answers through its HttpExchange, then or later, from any thread; nothing here blocks whoever answers. What a
// client does not read is kept up to HttpLimits::unread_bytes; then the client is cut off.
//
// A client that closes its connection, or the sending half of it, while it waits is gone: on_gone() hears of it.
// A connection serves one request after another; bytes sent ahead wait until the reply before them is written.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"

namespace tessera {

struct HttpLimits {
  uint64_t body_bytes = 32U << 20;
  uint32_t header_bytes = 32U << 10;
  int64_t n_connections = 1024;     // as many further ones are answered 503 and closed, others closed at once
  std::chrono::seconds idle{60};    // for the next request on a kept connection, and for headers to be whole
  std::chrono::seconds read{600};   // for a body to be whole
  std::chrono::seconds write{600};  // for a client to read something of what was sent
  uint64_t unread_bytes = 16U << 20;
};

struct HttpServerOptions {
  std::vector<std::string> hosts = {"127.0.0.1"};  // names or addresses; what ends in .sock is a unix socket
  uint16_t port = 8080;                            // 0: any free one
  int n_handlers = 4;
  HttpLimits limits;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// A request, whole.
struct HttpRequest {
  std::string method;  // upper case as sent
  std::string path;    // percent escapes decoded, without the query
  std::string query;   // as sent, without '?'
  HttpHeaders headers;
  std::string body;
  std::string peer;  // address of the client; empty for a unix socket

  /// Value of a header, whatever the case of its name; empty when it is missing.
  [[nodiscard]] std::string_view header(std::string_view name) const;
  /// Value of a query parameter, escapes decoded; empty when it is missing.
  [[nodiscard]] std::string query_value(std::string_view name) const;
};

/// Method, path and peer alone, as a log row needs them: what waits for long holds no body.
HttpRequest line_of(const HttpRequest& request);

/// The answer to one request. Thread-safe. One that is destroyed without an answer answers 500. A call that throws for
/// want of memory has sent nothing, and may be tried again; where reply() or begin_events() threw, another reply may be
/// sent.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  /// Sends a whole reply. headers are added to Content-Type, Content-Length, Connection and those of add_header().
  virtual void reply(int status, std::string_view content_type, std::string body, const HttpHeaders& headers = {}) = 0;
  /// Adds a header to the reply to come.
  virtual void add_header(std::string name, std::string value) = 0;

  /// Begins a stream of server-sent events with status 200. While none is sent for `ping`, a comment line is (0: none).
  virtual void begin_events(std::chrono::seconds ping) = 0;
  /// Sends `text`, one or more whole events ("data: ...\n\n"). False: the client is gone, or no stream is open.
  virtual bool send_events(std::string_view text) = 0;
  virtual void end_events() = 0;

  /// Calls fn, once, on the thread of the sockets, if the client goes before the answer is complete; at once if it went
  /// already. fn must not block.
  virtual void on_gone(std::function<void()> fn) = 0;
  /// Runs fn, which goes on with the request, on a handler's thread: for whoever must not be held up by it.
  virtual void go_on(std::function<void()> fn) = 0;
  [[nodiscard]] virtual bool gone() const = 0;
  /// Status of what was sent so far; 0: nothing.
  [[nodiscard]] virtual int status() const = 0;
};

/// What it throws, or what go_on() was given throws, is answered with 500, and ends nothing else.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpExchange> exchange)>;
/// Body of a reply that the server itself makes: to what is no HTTP (400), is too long (413, 431), or too much (503).
using HttpErrorBody = std::function<std::string(int status, std::string_view message)>;

class HttpServer {
 public:
  /// Opens the sockets and starts the threads. Unix sockets are made with mode 0660 in place of an old socket.
  /// Errors: kInvalidArgument (no such host), kIo (the port is taken, ...); each names the address.
  static Result<std::unique_ptr<HttpServer>> start(const HttpServerOptions& options, HttpHandler handler,
                                                   HttpErrorBody error_body);
  /// As stop(), at once.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// What it listens on: "http://127.0.0.1:8080" or "unix:/path.sock".
  [[nodiscard]] const std::vector<std::string>& addresses() const;

  /// Accepts no more connections, waits up to `grace` until replies that were begun are written, closes the rest and
  /// ends the threads. REQUIRES: not called from a handler.
  void stop(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A text whose %XX (and, in a form, '+') are decoded; what is no escape stays.
std::string decode_percent(std::string_view text, bool is_form);

}  // namespace tessera

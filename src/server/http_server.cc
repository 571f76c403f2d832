// One file, and a long one: what includes Boost takes minutes to compile.

#include "server/http_server.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <fmt/format.h>
#include <future>
#include <mutex>
#include <optional>
#include <set>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace tessera {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

using Protocol = asio::generic::stream_protocol;
using Socket = Protocol::socket;
using Stream = beast::basic_stream<Protocol>;
using Parser = http::request_parser<http::string_body>;

class Connection;

// What connections share; lives as long as the threads.
struct Shared {
  HttpLimits limits;
  HttpHandler handler;
  HttpErrorBody error_body;
  asio::io_context io{1};
  asio::thread_pool handlers;
  std::set<std::shared_ptr<Connection>> connections;  // the io thread's
  int64_t n_refused = 0;                              // of these: are told that they are too many. The io thread's
  bool stopping = false;                              // the io thread's
  std::function<void()> on_empty;                     // the io thread's: connections became empty

  Shared(const HttpServerOptions& options, HttpHandler h, HttpErrorBody e)
      : limits(options.limits),
        handler(std::move(h)),
        error_body(std::move(e)),
        handlers(static_cast<size_t>(std::max(options.n_handlers, 1))) {}
};

bool is_clean_header(std::string_view text) {
  return std::ranges::none_of(text, [](char c) { return c == '\r' || c == '\n' || c == '\0'; });
}

// Whatever is thrown on behalf of a request is that request's failure alone.
template <typename Fn>
void answer_throws(HttpExchange& exchange, const HttpErrorBody& error_body, const Fn& fn) {
  const auto fail = [&](const char* what) {
    try {
      exchange.reply(500, "application/json; charset=utf-8",
                     error_body(500, fmt::format("the server failed at this request: {}", what)));
    } catch (...) {
      // There is no memory even for that: the exchange tries again when it goes.
    }
  };
  try {
    fn();
  } catch (const std::bad_alloc&) {
    fail("no memory is left");
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("of an unknown kind");
  }
}

// The reply in flight of a connection, as handlers see it. Everything about the socket happens on the io thread, to
// which calls are posted in their order.
class Exchange final : public HttpExchange, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<Shared> shared, std::weak_ptr<Connection> connection, bool is_head, int http_version,
           bool keep_alive)
      : shared_(std::move(shared)),
        connection_(std::move(connection)),
        is_head_(is_head),
        has_chunks_(http_version >= 11),
        keep_alive_(keep_alive && http_version >= 11) {}

  ~Exchange() override {
    try {
      if (status_ == 0) {
        reply(500, "application/json", shared_->error_body(500, "the request was not answered"));
      } else if (!complete_) {
        end_events();
      }
    } catch (...) {
      // Without memory: the connection ends when its client goes.
    }
  }

  // Whatever is sent counts as sent once it is on its way, and not before: memory may run out while it is made, and
  // then another answer may be sent, a shorter one.
  void reply(int status, std::string_view content_type, std::string body, const HttpHeaders& headers = {}) override {
    const std::lock_guard lock(mutex_);
    if (status_ != 0) {
      return;
    }
    std::string text = head(status, content_type, headers);
    if (status != 204 && status != 304) {  // have no body, and may not state another length than it would have
      text += fmt::format("Content-Length: {}\r\n", body.size());
    }
    text += "\r\n";
    if (!is_head_) {
      text += body;
    }
    send(std::move(text), true);
    status_ = status;
    complete_ = true;
  }

  void add_header(std::string name, std::string value) override {
    const std::lock_guard lock(mutex_);
    headers_.emplace_back(std::move(name), std::move(value));
  }

  void begin_events(std::chrono::seconds ping) override;
  bool send_events(std::string_view text) override {
    const std::lock_guard lock(mutex_);
    if (gone_ || status_ == 0 || complete_) {
      return false;
    }
    if (!is_head_) {
      send(has_chunks_ ? fmt::format("{:x}\r\n{}\r\n", text.size(), text) : std::string(text), false);
    }
    return true;
  }
  void end_events() override {
    const std::lock_guard lock(mutex_);
    if (status_ != 0 && !complete_) {
      send(has_chunks_ && !is_head_ ? "0\r\n\r\n" : "", true);
      complete_ = true;
    }
  }

  void on_gone(std::function<void()> fn) override {
    {
      const std::lock_guard lock(mutex_);
      if (!gone_) {
        on_gone_ = std::move(fn);
        return;
      }
    }
    fn();
  }
  void go_on(std::function<void()> fn) override {
    asio::post(shared_->handlers, [self = shared_from_this(), fn = std::move(fn)] {
      answer_throws(*self, self->shared_->error_body, fn);
    });
  }
  [[nodiscard]] bool gone() const override { return gone_; }
  [[nodiscard]] int status() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  // The io thread's.
  void set_gone() {
    std::function<void()> fn;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      fn = std::exchange(on_gone_, nullptr);
    }
    if (fn) {
      fn();
    }
  }
  // The reply is written: nobody is told of the client any more.
  void forget() {
    std::function<void()> fn;  // destroyed outside of the lock
    const std::lock_guard lock(mutex_);
    fn.swap(on_gone_);
  }
  [[nodiscard]] bool keeps_alive() const { return keep_alive_; }
  /// Is there until the destructor has sent what it had to: longer than a weak pointer to this tells.
  [[nodiscard]] std::weak_ptr<void> life() const { return life_; }

 private:
  // Status line and headers, without the empty line. REQUIRES: mutex_.
  [[nodiscard]] std::string head(int status, std::string_view content_type, const HttpHeaders& more) const {
    const std::string_view reason = http::obsolete_reason(static_cast<http::status>(status));
    std::string text =
        fmt::format("HTTP/1.1 {} {}\r\nServer: tessera\r\nContent-Type: {}\r\n", status, reason, content_type);
    for (const HttpHeaders* headers : {&headers_, &more}) {
      for (const auto& [name, value] : *headers) {
        if (is_clean_header(value)) {
          text += fmt::format("{}: {}\r\n", name, value);
        }
      }
    }
    text += keep_alive_ ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
    return text;
  }
  void send(std::string text, bool last);

  std::shared_ptr<void> life_ = std::make_shared<char>();
  std::shared_ptr<Shared> shared_;
  std::weak_ptr<Connection> connection_;
  const bool is_head_;
  const bool has_chunks_;
  bool keep_alive_;
  mutable std::mutex mutex_;
  HttpHeaders headers_;
  int status_ = 0;
  bool complete_ = false;
  std::atomic<bool> gone_ = false;
  std::function<void()> on_gone_;
};

// One socket; all of it runs on the io thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Shared> shared, Socket socket, std::string peer)
      : shared_(std::move(shared)), stream_(std::move(socket)), peer_(std::move(peer)), ping_timer_(shared_->io) {}

  void begin() { read_header(); }

  // More connections than there may be: says so and closes.
  void refuse() {
    refused_ = true;
    ++shared_->n_refused;
    respond_error(503, "too many connections; try again later");
  }

  void close() {
    ping_timer_.cancel();
    if (exchange_ != nullptr || !watched_.expired()) {
      tell_gone();
    }
    error_code ignored;
    stream_.socket().shutdown(Socket::shutdown_both, ignored);
    stream_.socket().close(ignored);
    if (shared_->connections.erase(shared_from_this()) > 0 && refused_) {
      --shared_->n_refused;
    }
    if (shared_->connections.empty() && shared_->on_empty) {
      shared_->on_empty();
    }
  }

  // Ends once nothing is in flight.
  void stop() {
    stopping_ = true;
    if (!in_flight_ && !writing_) {
      close();
    }
  }

  void start_pings(std::chrono::seconds ping, bool has_chunks) {
    ping_ = ping;
    ping_text_ = has_chunks ? "3\r\n:\n\n\r\n" : ":\n\n";
    arm_ping();
  }

  void send(std::string text, bool last, bool keep_alive) {
    if (!stream_.socket().is_open() || !in_flight_) {
      return;
    }
    unread_bytes_ += text.size();
    if (unread_bytes_ > shared_->limits.unread_bytes && !last && out_.size() > 1) {
      close();
      return;
    }
    if (!text.empty()) {
      out_.push_back(std::move(text));
    }
    if (last) {
      ping_timer_.cancel();
      ping_ = {};
      in_flight_ = false;
      keep_alive_ = keep_alive && !stopping_ && !half_closed_;
    } else {
      arm_ping();
    }
    write_next();
  }

 private:
  void read_header() {
    parser_.emplace();
    parser_->header_limit(shared_->limits.header_bytes);
    parser_->body_limit(shared_->limits.body_bytes);
    stream_.expires_after(shared_->limits.idle);
    http::async_read_header(stream_, buffer_, *parser_, [self = shared_from_this()](error_code error, size_t) {
      if (error) {
        self->fail(error);
      } else {
        self->read_body();
      }
    });
  }

  void read_body() {
    stream_.expires_after(shared_->limits.read);
    if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
      // What was announced as too long is refused before it is sent.
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      if (const auto length = parser_->content_length(); length && *length > shared_->limits.body_bytes) {
        fail(http::error::body_limit);
        return;
      }
      asio::async_write(stream_, asio::buffer(kContinue), [self = shared_from_this()](error_code error, size_t) {
        if (error) {
          self->close();
        } else {
          self->read_rest();
        }
      });
      return;
    }
    read_rest();
  }

  void read_rest() {
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](error_code error, size_t) {
      if (error) {
        self->fail(error);
      } else {
        self->hand_over();
      }
    });
  }

  void fail(error_code error) {
    if (error == http::error::header_limit) {
      respond_error(431, fmt::format("the headers are longer than {} bytes", shared_->limits.header_bytes));
    } else if (error == http::error::body_limit) {
      respond_error(413, fmt::format("the body is longer than {} bytes", shared_->limits.body_bytes));
    } else if (error == beast::error::timeout) {
      close();  // basic_stream has closed the socket
    } else if (error.category() == http::make_error_code(http::error::bad_method).category() &&
               error != http::error::end_of_stream && error != http::error::partial_message) {
      respond_error(400, fmt::format("this is no HTTP request: {}", error.message()));
    } else {
      close();
    }
  }

  void respond_error(int status, const std::string& message) {
    in_flight_ = true;
    close_after_ = true;
    auto exchange = std::make_shared<Exchange>(shared_, weak_from_this(), false, 11, false);
    exchange->reply(status, "application/json; charset=utf-8", shared_->error_body(status, message));
    exchange_ = exchange;
  }

  void hand_over() {
    stream_.expires_never();
    http::request<http::string_body> message = parser_->release();
    HttpRequest request;
    request.method = std::string(message.method_string());
    const std::string_view target = message.target();
    const size_t question = target.find('?');
    request.path = decode_percent(target.substr(0, question), false);
    request.query = question == std::string_view::npos ? "" : std::string(target.substr(question + 1));
    for (const auto& field : message) {
      request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    }
    request.body = std::move(message.body());
    request.peer = peer_;
    in_flight_ = true;
    auto exchange = std::make_shared<Exchange>(shared_, weak_from_this(), request.method == "HEAD", message.version(),
                                               message.keep_alive());
    watched_ = exchange;
    watched_life_ = exchange->life();
    watch();
    // It lives as long as somebody may answer. This thread keeps none, or it would often be the last to let go and make
    // the answer that is sent then.
    asio::post(shared_->handlers,
               [shared = shared_, request = std::move(request), exchange = std::move(exchange)]() mutable {
                 answer_throws(*exchange, shared->error_body, [&] { shared->handler(std::move(request), exchange); });
               });
  }

  // Learns that the client went while its answer is made: its socket becomes readable and has nothing to read.
  void watch() {
    if (buffer_.size() > 0) {
      return;  // the next request is here already
    }
    stream_.socket().async_wait(Socket::wait_read, [self = shared_from_this()](error_code error) {
      if (error || !self->in_flight_) {
        return;
      }
      char byte = 0;
      error_code read_error;
      const size_t n = self->stream_.socket().receive(asio::buffer(&byte, 1), Socket::message_peek, read_error);
      if (n == 0 && read_error != asio::error::would_block) {
        self->half_closed_ = true;
        if (self->watched_life_.expired()) {
          // Its answer may be on its way to this thread. If none is, none could be made.
          asio::post(self->shared_->io, [self] {
            if (self->in_flight_) {
              self->close();
            }
          });
        } else {
          self->tell_gone();
        }
      }
    });
  }

  void tell_gone() {
    if (const auto exchange = watched_.lock()) {
      exchange->set_gone();
    }
  }

  void arm_ping() {
    if (ping_.count() <= 0) {
      return;
    }
    ping_timer_.expires_after(ping_);
    ping_timer_.async_wait([self = shared_from_this()](error_code error) {
      if (!error && self->in_flight_) {
        self->send(self->ping_text_, false, true);
      }
    });
  }

  void write_next() {
    if (writing_) {
      return;
    }
    if (out_.empty()) {
      if (!in_flight_) {
        answered();
      }
      return;
    }
    writing_ = true;
    stream_.expires_after(shared_->limits.write);
    asio::async_write(stream_, asio::buffer(out_.front()), [self = shared_from_this()](error_code error, size_t) {
      self->writing_ = false;
      if (error) {
        self->close();
        return;
      }
      self->unread_bytes_ -= self->out_.front().size();
      self->out_.pop_front();
      self->write_next();
    });
  }

  void answered() {
    if (const auto exchange = watched_.lock()) {
      exchange->forget();
    }
    watched_.reset();
    exchange_.reset();
    if (close_after_) {
      linger();
    } else if (keep_alive_ && stream_.socket().is_open()) {
      stream_.socket().cancel();  // watch()
      read_header();
    } else {
      close();
    }
  }

  // Closing with unread input would reset the connection and take the reply away from the client.
  void linger() {
    error_code ignored;
    stream_.socket().shutdown(Socket::shutdown_send, ignored);
    stream_.expires_after(std::chrono::seconds(2));
    discard();
  }
  void discard() {
    buffer_.consume(buffer_.size());
    stream_.async_read_some(buffer_.prepare(65536), [self = shared_from_this()](error_code error, size_t n) {
      self->n_discarded_ += n;
      if (error || self->n_discarded_ > self->shared_->limits.body_bytes) {
        self->close();
      } else {
        self->discard();
      }
    });
  }

  std::shared_ptr<Shared> shared_;
  Stream stream_;
  std::string peer_;
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::shared_ptr<Exchange> exchange_;  // of respond_error() only
  std::weak_ptr<Exchange> watched_;
  std::weak_ptr<void> watched_life_;
  std::deque<std::string> out_;
  uint64_t unread_bytes_ = 0;  // of out_
  bool refused_ = false;
  uint64_t n_discarded_ = 0;
  asio::steady_timer ping_timer_;
  std::chrono::seconds ping_{};
  std::string ping_text_;
  bool in_flight_ = false;  // a request waits for its answer
  bool writing_ = false;
  bool keep_alive_ = false;
  bool close_after_ = false;
  bool half_closed_ = false;
  bool stopping_ = false;
};

void Exchange::begin_events(std::chrono::seconds ping) {
  const std::lock_guard lock(mutex_);
  if (status_ != 0) {
    return;
  }
  HttpHeaders headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  if (has_chunks_) {
    headers.emplace_back("Transfer-Encoding", "chunked");
  }
  std::string text = head(200, "text/event-stream", headers) + "\r\n";
  if (is_head_) {  // has no body to put one in
    ping = {};
  }
  asio::post(shared_->io, [connection = connection_, text = std::move(text), ping, chunks = has_chunks_]() mutable {
    if (const auto alive = connection.lock()) {
      alive->send(std::move(text), /*last=*/false, /*keep_alive=*/true);
      alive->start_pings(ping, chunks);
    }
  });
  status_ = 200;
}

void Exchange::send(std::string text, bool last) {
  asio::post(shared_->io, [connection = connection_, text = std::move(text), last, keep = keep_alive_]() mutable {
    if (const auto alive = connection.lock()) {
      alive->send(std::move(text), last, keep);
    }
  });
}

template <typename Acceptor>
std::string peer_name(const typename Acceptor::protocol_type::endpoint& endpoint) {
  if constexpr (std::is_same_v<Acceptor, asio::ip::tcp::acceptor>) {
    return endpoint.address().to_string();
  } else {
    return {};
  }
}

std::string url_of(const asio::ip::tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return fmt::format(fmt::runtime(endpoint.address().is_v6() ? "http://[{}]:{}" : "http://{}:{}"), address,
                     endpoint.port());
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpServerOptions& options, HttpHandler handler, HttpErrorBody error_body)
      : shared_(std::make_shared<Shared>(options, std::move(handler), std::move(error_body))) {}

  ~Impl() { stop(std::chrono::milliseconds(0)); }

  Status listen(const HttpServerOptions& options) {
    try {
      for (const std::string& host : options.hosts) {
        TRY(host.ends_with(".sock") ? listen_unix(host) : listen_tcp(host, options.port));
      }
    } catch (const boost::system::system_error& error) {
      return {ErrorCode::kIo, error.what()};
    }
    return {};
  }

  void run() {
    thread_ = std::thread([this] {
      for (bool ended = false; !ended;) {
        try {
          shared_->io.run();
          ended = true;
        } catch (const std::bad_alloc&) {
          // One connection goes no further: its client gives up, or the server's end closes it. The others go on.
        }
      }
    });
  }

  void stop(std::chrono::milliseconds grace) {
    if (!thread_.joinable()) {
      return;
    }
    std::promise<void> emptied;
    std::future<void> is_empty = emptied.get_future();
    asio::post(shared_->io, [&] {
      tcp_.clear();
      unix_.clear();
      shared_->stopping = true;
      shared_->on_empty = [&, told = false]() mutable {
        if (!std::exchange(told, true)) {
          emptied.set_value();
        }
      };
      const auto all = shared_->connections;
      for (const auto& connection : all) {
        connection->stop();
      }
      if (shared_->connections.empty()) {
        shared_->on_empty();
      }
    });
    is_empty.wait_for(grace);
    std::promise<void> closed;
    asio::post(shared_->io, [&] {
      shared_->on_empty = nullptr;
      const auto all = shared_->connections;
      for (const auto& connection : all) {
        connection->close();
      }
      closed.set_value();
    });
    closed.get_future().wait();
    shared_->handlers.join();
    work_.reset();
    thread_.join();
    for (const std::string& path : unix_paths_) {
      unlink(path.c_str());
    }
  }

  std::vector<std::string> addresses_;

 private:
  Status listen_tcp(const std::string& host, uint16_t port) {
    asio::ip::tcp::resolver resolver(shared_->io);
    error_code error;
    const auto found = resolver.resolve(host, std::to_string(port), asio::ip::tcp::resolver::passive, error);
    if (error || found.empty()) {
      return {ErrorCode::kInvalidArgument, fmt::format("--host {}: {}", host, error.message())};
    }
    const asio::ip::tcp::endpoint endpoint = found.begin()->endpoint();
    try {
      // The port may be used again while connections of the last server wait to be forgotten.
      tcp_.emplace_back(shared_->io, endpoint, true);
    } catch (const boost::system::system_error& failed) {
      return {ErrorCode::kIo, fmt::format("cannot listen on {}: {}", url_of(endpoint), failed.code().message())};
    }
    addresses_.push_back(url_of(tcp_.back().local_endpoint()));
    accept(tcp_.back());
    return {};
  }

  Status listen_unix(const std::string& path) {
    struct stat found = {};
    if (stat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) {
      unlink(path.c_str());
    }
    const mode_t before = umask(0117);
    try {
      unix_.emplace_back(shared_->io, asio::local::stream_protocol::endpoint(path));
    } catch (const boost::system::system_error& failed) {
      umask(before);
      return {ErrorCode::kIo, fmt::format("cannot listen on {}: {}", path, failed.code().message())};
    }
    umask(before);
    unix_paths_.push_back(path);
    addresses_.push_back("unix:" + path);
    accept(unix_.back());
    return {};
  }

  template <typename Acceptor>
  void accept(Acceptor& acceptor) {
    acceptor.async_accept([this, &acceptor](error_code error, typename Acceptor::protocol_type::socket socket) {
      if (error == asio::error::operation_aborted || shared_->stopping) {
        return;  // `acceptor` may be gone
      }
      if (error) {
        // No more file descriptors, or the client is gone already: others can wait a little.
        auto pause = std::make_shared<asio::steady_timer>(shared_->io, std::chrono::milliseconds(50));
        pause->async_wait([this, &acceptor, pause](error_code) {
          if (!shared_->stopping) {
            accept(acceptor);
          }
        });
        return;
      }
      error_code no_peer;
      const auto endpoint = socket.remote_endpoint(no_peer);
      std::string peer = no_peer ? std::string() : peer_name<Acceptor>(endpoint);
      if constexpr (std::is_same_v<Acceptor, asio::ip::tcp::acceptor>) {
        socket.set_option(asio::ip::tcp::no_delay(true), no_peer);
      }
      const auto connection = std::make_shared<Connection>(shared_, Socket(std::move(socket)), std::move(peer));
      // Those that are refused take nobody's place, or clients that try again would keep each other out.
      const int64_t n_served = static_cast<int64_t>(shared_->connections.size()) - shared_->n_refused;
      shared_->connections.insert(connection);
      if (n_served < shared_->limits.n_connections) {
        connection->begin();
      } else if (shared_->n_refused < shared_->limits.n_connections) {
        connection->refuse();
      } else {
        connection->close();
      }
      accept(acceptor);
    });
  }

  std::shared_ptr<Shared> shared_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{shared_->io.get_executor()};
  std::deque<asio::ip::tcp::acceptor> tcp_;
  std::deque<asio::local::stream_protocol::acceptor> unix_;
  std::vector<std::string> unix_paths_;
  std::thread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpServerOptions& options, HttpHandler handler,
                                                      HttpErrorBody error_body) {
  auto impl = std::make_unique<Impl>(options, std::move(handler), std::move(error_body));
  TRY(impl->listen(options));
  impl->run();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

const std::vector<std::string>& HttpServer::addresses() const {
  return impl_->addresses_;
}

void HttpServer::stop(std::chrono::milliseconds grace) {
  impl_->stop(grace);
}

}  // namespace tessera

// libFuzzer target: a request to every API, from its route to the last byte of its answer, with a model that is not
// there. The first line is "METHOD PATH?QUERY", the rest the body. Aborts when an answer has a status that means a
// fault of ours, when it is no JSON (or no events of JSON), when an error says nothing, or when there is no answer.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "fake_serving.h"
#include "server/server.h"

namespace {

using tessera::HttpExchange;
using tessera::HttpHeaders;
using tessera::HttpRequest;

// Keeps the answer.
class KeptExchange final : public HttpExchange {
 public:
  void reply(int status, std::string_view content_type, std::string body, const HttpHeaders&) override {
    CHECK(status_ == 0);
    status_ = status;
    is_json_ = content_type.starts_with("application/json");
    body_ = std::move(body);
    complete_ = true;
  }
  void add_header(std::string, std::string) override { CHECK(status_ == 0); }
  void begin_events(std::chrono::seconds) override {
    CHECK(status_ == 0);
    status_ = 200;
    streams_ = true;
  }
  bool send_events(std::string_view text) override {
    CHECK(streams_ && !complete_ && text.ends_with("\n\n"));
    body_ += text;
    return true;
  }
  void end_events() override { complete_ = true; }
  void on_gone(std::function<void()>) override {}
  bool gone() const override { return false; }
  int status() const override { return status_; }

  void check() const {
    CHECK(complete_);
    CHECK(status_ == 200 || status_ == 204 || (status_ >= 400 && status_ < 500) || status_ == 501);
    if (is_json_) {
      check_json(body_, status_ >= 400);
    }
    for (size_t begin = 0; streams_ && begin < body_.size();) {
      const size_t end = body_.find('\n', begin);
      const std::string_view line = std::string_view(body_).substr(begin, end - begin);
      if (line.starts_with("data: ") && line != "data: [DONE]") {
        check_json(line.substr(6), false);
      }
      begin = end + 1;
    }
  }

 private:
  static void check_json(std::string_view text, bool is_error) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    CHECK(!json.is_discarded());
    if (is_error) {
      CHECK(json.at("error").at("message").get<std::string>().find(' ') != std::string::npos);
    }
  }

  int status_ = 0;
  bool is_json_ = false;
  bool streams_ = false;
  bool complete_ = false;
  std::string body_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static tessera::Server server(
      [] {
        tessera::ServerSettings settings;
        settings.slot_save_path = "/nowhere";
        settings.metrics_route = true;
        return settings;
      }(),
      {});
  static const bool kReady = (server.set_model(tessera::fake_model()), true);
  CHECK(kReady);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(input.find('\n'), input.size());
  const std::string_view head = input.substr(0, line);
  const size_t blank = std::min(head.find(' '), head.size());
  const std::string_view target = head.substr(std::min(blank + 1, head.size()));
  const size_t question = std::min(target.find('?'), target.size());
  HttpRequest request;
  request.method = head.substr(0, blank);
  request.path = target.substr(0, question);
  request.query = target.substr(std::min(question + 1, target.size()));
  request.body = input.substr(std::min(line + 1, input.size()));
  const auto exchange = std::make_shared<KeptExchange>();
  server.handle(std::move(request), exchange);
  tessera::run_fake_serving();
  exchange->check();
  return 0;
}

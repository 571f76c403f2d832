// libFuzzer target: a request to every API, from its route to the last byte of its answer, with models that are not
// there (fake_serving.h). The first line is "METHOD PATH?QUERY", the rest the body. Aborts when an answer has a status
// that means a fault of ours, when it is no JSON (or no events of JSON), when an error says nothing, or when there is
// no answer.
//
// Of the three models "late" is not loaded until the request names it. With a query parameter "gone" the client leaves
// before anything is generated.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fake_serving.h"
#include "server/server.h"

namespace {

using tessera::FakeKind;
using tessera::HttpExchange;
using tessera::HttpHeaders;
using tessera::HttpRequest;
using tessera::ModelRegistry;
using tessera::Result;
using tessera::ServedModel;

// What is waited for comes, as time is nothing here: only against hanging for ever.
constexpr std::chrono::seconds kPatience(30);

// Does the models' work until `is_done`.
void work_until(const std::function<bool()>& is_done) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!is_done()) {
    CHECK(std::chrono::steady_clock::now() < deadline);
    if (!tessera::run_fake_serving()) {
      std::this_thread::yield();  // the registry's thread is at work
    }
  }
}

constexpr size_t kLate = 2;  // index of the model

class FakeSource final : public tessera::ModelSource {
 public:
  Result<std::vector<tessera::DeviceClaim>> count(size_t, const tessera::LoadPlacement&) override {
    return std::vector<tessera::DeviceClaim>();
  }
  Result<std::shared_ptr<ServedModel>> load(size_t model, const tessera::LoadPlacement&,
                                            const std::atomic<bool>&) override {
    return tessera::fake_model(names()[model], model == 1 ? FakeKind::kHarmony : FakeKind::kTagged);
  }
  std::vector<tessera::DeviceClaim> present(size_t, const ServedModel&) override { return {}; }
  static const std::vector<std::string>& names() {
    static const std::vector<std::string> kNames = {"fake", "other", "late"};
    return kNames;
  }
};

// Brings the registry to where every input begins.
void set_models(ModelRegistry& models) {
  std::atomic<int> n_waiting = 0;
  for (size_t i = 0; i < kLate; ++i) {
    ++n_waiting;
    models.acquire(i, {}, [&](const Result<ModelRegistry::Lease>& lease) {
      CHECK(lease.ok());
      --n_waiting;
    });
  }
  ++n_waiting;
  if (!models.unload(kLate, [&](const tessera::Status&) { --n_waiting; }).ok()) {
    --n_waiting;
  }
  work_until([&] { return n_waiting == 0; });
}

// Keeps the answer.
class KeptExchange final : public HttpExchange {
 public:
  void reply(int status, std::string_view content_type, std::string body, const HttpHeaders&) override {
    const std::lock_guard lock(mutex_);
    CHECK(status_ == 0);
    status_ = status;
    is_json_ = content_type.starts_with("application/json");
    body_ = std::move(body);
    complete_ = true;
  }
  void add_header(std::string, std::string) override { CHECK(status() == 0); }
  void begin_events(std::chrono::seconds) override {
    const std::lock_guard lock(mutex_);
    CHECK(status_ == 0);
    status_ = 200;
    streams_ = true;
  }
  bool send_events(std::string_view text) override {
    const std::lock_guard lock(mutex_);
    CHECK(streams_ && !complete_ && text.ends_with("\n\n"));
    body_ += text;
    return !gone_;
  }
  void end_events() override {
    const std::lock_guard lock(mutex_);
    CHECK(streams_);
    complete_ = true;
  }
  void on_gone(std::function<void()> fn) override {
    const std::lock_guard lock(mutex_);
    on_gone_ = std::move(fn);
  }
  void go_on(std::function<void()> fn) override { fn(); }
  bool gone() const override { return gone_; }
  int status() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  bool complete() const {
    const std::lock_guard lock(mutex_);
    return complete_;
  }

  void leave() {
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

  /// may_lack: the model may not be there.
  void check(bool may_lack) const {
    const std::lock_guard lock(mutex_);
    CHECK(status_ == 200 || status_ == 204 || (status_ >= 400 && status_ < 500) || status_ == 501 ||
          (status_ == 503 && (may_lack || gone_)));
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

  mutable std::mutex mutex_;
  std::atomic<bool> gone_ = false;
  std::function<void()> on_gone_;
  int status_ = 0;
  bool is_json_ = false;
  bool streams_ = false;
  bool complete_ = false;
  std::string body_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Never taken down: the registry's thread would have to end before other objects do.
  static const std::shared_ptr<ModelRegistry>& models = *new std::shared_ptr<ModelRegistry>(
      ModelRegistry::start(FakeSource::names(), std::make_unique<FakeSource>()).value());
  static tessera::Server& server = *[] {
    tessera::ServerSettings settings;
    settings.slot_save_path = "/nowhere";
    settings.metrics_route = true;
    return new tessera::Server(std::move(settings), {});
  }();
  server.set_models(models);
  set_models(*models);

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
  const bool only_looks = request.method == "GET" || request.method == "HEAD";
  const bool leaves = !request.query_value("gone").empty();
  const auto exchange = std::make_shared<KeptExchange>();
  server.handle(std::move(request), exchange);
  if (leaves) {
    exchange->leave();
  }
  work_until([&] { return exchange->complete(); });
  exchange->check(only_looks);
  return 0;
}

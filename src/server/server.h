#pragma once
// The server: routes, keys, errors, and what one loaded model brings to a request. http_server.h brings the requests.
//
// handle() runs on handler threads, many at once. Until set_models() everything that needs a model answers 503, as it
// does from begin_shutdown() on. Which model a request is for says its field or query parameter "model"; a request for
// one that is not loaded waits in the registry, and no thread with it. An API is a function that reads a Call and
// answers its exchange, now or later; a Status that it returns becomes the error reply.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "runtime/engine.h"
#include "runtime/live_placement.h"
#include "runtime/serving.h"
#include "server/chat_format.h"
#include "server/http_server.h"
#include "server/model_registry.h"
#include "server/reasoning.h"
#include "server/request_fields.h"

namespace tessera {

struct ServerSettings {
  std::vector<std::string> api_keys;  // empty: none is asked for
  std::string slot_save_path;         // folder of slot files; empty: slots are not saved
  std::string build;                  // for /props
  std::string page_folder;            // whose files stand at `/`; empty: the built-in page
  bool page = true;                   // false: nothing stands there
  bool slots_route = true;
  bool metrics_route = false;
  bool log_json = false;
  std::chrono::seconds ping{30};
  int32_t n_choices_max = 16;  // of one request
};

/// A model that is being served. Immutable but for what its members guard themselves.
struct ServedModel {
  std::string name;  // in requests and replies
  std::string path;
  std::shared_ptr<Model> model;
  std::unique_ptr<ChatTemplate> chat_template;
  std::string template_source;  // "" : ChatML
  ChatFormat chat_format;
  ServingRequest defaults;         // what requests do not say
  std::optional<Pooling> pooling;  // of embeddings; nothing: there are none
  bool spm_infill = false;         // suffix first
  ReasoningDefaults reasoning;
  std::unique_ptr<Serving> serving;
  std::shared_ptr<LivePlacement> placement;  // shared with serving, whose steps may ask it
};

class Server;

/// One request on its way through an API.
struct Call {
  Server& server;
  HttpRequest request;
  std::shared_ptr<HttpExchange> exchange;
  std::shared_ptr<ServedModel> model;  // null for routes that need none; it stays loaded as long as this lives
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  bool logs_itself = false;           // the row comes with the end of a generation
  std::shared_ptr<Json> parsed = {};  // the body, once somebody has looked into it

  /// The body, which must be an object, and is parsed but once. Errors: those of parse_json_object().
  Result<const Json*> look_into_body();
  /// The same for an API's own use; the call has no body any more.
  Result<Json> take_body();
  void reply_json(const Json& json, int status = 200) const;
};

/// What stands in a request's log row beside method, path, status and time.
struct LogRow {
  int64_t n_prompt = 0;
  int64_t n_cached = 0;
  int64_t n_predicted = 0;
  double first_token_ms = 0;
  double tokens_per_s = 0;
  std::string stop;       // empty: neither a generation nor an embedding
  bool generates = true;  // false: an embedding, of which n_prompt and n_cached are told
};

struct Route;  // of the table in server.cc

class Server {
 public:
  Server(ServerSettings settings, Log log);

  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange);

  /// REQUIRES: the registry is stopped before the server goes.
  void set_models(std::shared_ptr<ModelRegistry> models);
  /// Null: not yet.
  [[nodiscard]] std::shared_ptr<ModelRegistry> models() const;
  /// Takes no more requests; those that run go on.
  void begin_shutdown() { closing_ = true; }

  /// Whether the request has a key, or none is asked for.
  [[nodiscard]] bool has_key(const HttpRequest& request) const;

  [[nodiscard]] const ServerSettings& settings() const { return settings_; }
  /// Unix time at which the server began.
  [[nodiscard]] int64_t created() const { return created_; }
  /// Another id for a reply, such as "chatcmpl-...".
  [[nodiscard]] std::string new_id(std::string_view prefix);

  void log_request(const HttpRequest& request, int status, std::chrono::steady_clock::time_point begun,
                   const LogRow& row) const;

 private:
  /// Where a call that was admitted goes.
  struct Way {
    const Route* route = nullptr;  // null: it is answered already
    size_t model = 0;
  };
  Status admit(Call& call, Way& way) const;
  void pass_on(const std::shared_ptr<Call>& call, const Way& way) const;
  void conclude(Call& call, const Status& status) const;

  const ServerSettings settings_;
  const Log log_;
  const int64_t created_;
  const std::string id_prefix_;  // of this process
  std::atomic<uint64_t> n_ids_ = 0;
  std::atomic<bool> closing_ = false;
  mutable std::mutex mutex_;
  std::shared_ptr<ModelRegistry> models_;
};

// ---- errors

/// HTTP status of a failure that a request met.
int http_status_of(const Status& status);
/// Whether the answer is to have the form of Anthropic's API: its paths, and of those that OpenAI's has too the ones
/// asked with its header.
bool asks_anthropic(const HttpRequest& request);
/// {"error":{"code","message","type"}}, or that of Anthropic's API.
std::string error_body(int status, std::string_view message, bool anthropic = false);
/// Answers a failure. kBusy: 429 with Retry-After. kCacheFull: 400. kCancelled: 503, or 499 where the client has left.
void reply_error(HttpExchange& exchange, const Status& status, bool anthropic);
/// Answers 400 to a prompt of n_prompt tokens, which a context of n_ctx cannot take, in the form by which clients of
/// each API know that they have to shorten it. status: what Serving::check_length() says.
void reply_too_long(HttpExchange& exchange, const Status& status, int64_t n_prompt, int64_t n_ctx, bool anthropic);

// ---- APIs, one file api_<name>.cc each

Status api_health(Call& call);
Status api_props(Call& call);
Status api_slots(Call& call);
Status api_slot_action(Call& call);
Status api_metrics(Call& call);
Status api_placement(Call& call);
Status api_set_placement(Call& call);
/// The placement that a body of POST /placement asks for. Errors: kInvalidArgument.
Result<LoadPlacement> asked_placement(const Json& body);
Status api_tokenize(Call& call);
Status api_detokenize(Call& call);
Status api_apply_template(Call& call);
Status api_completion(Call& call);
Status api_infill(Call& call);
Status api_embeddings(Call& call);
Status api_models(Call& call);
Status api_model(Call& call);
Status api_load_model(Call& call);
Status api_unload_model(Call& call);
Status api_openai_completions(Call& call);
Status api_chat_completions(Call& call);
Status api_messages(Call& call);
Status api_count_tokens(Call& call);
Status api_responses(Call& call);

}  // namespace tessera

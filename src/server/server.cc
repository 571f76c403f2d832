#include "server/server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <unistd.h>

#include "base/units.h"
#include "server/static_files.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// What must be there before a route's API is called.
enum class Needs {
  kNothing,
  kModels,  // the registry
  kModel,   // a model; only what is no GET waits for it to be loaded
};

}  // namespace

struct Route {
  std::string_view method;
  std::string_view path;
  Status (*api)(Call& call);
  bool is_public = false;  // asks for no key
  Needs needs = Needs::kModel;
  Result<LoadPlacement> (*placement)(const Json& body) = nullptr;  // how it wants a model that is loaded for it
};

namespace {

// Names as llama.cpp's server has them, and OpenAI's and Anthropic's APIs.
constexpr Route kRoutes[] = {
    {"GET", "/health", api_health, true, Needs::kNothing},
    {"GET", "/v1/health", api_health, true, Needs::kNothing},
    {"GET", "/models", api_models, true, Needs::kModels},
    {"GET", "/v1/models", api_models, true, Needs::kModels},
    {"GET", "/models/", api_model, true, Needs::kModels},  // and a name
    {"GET", "/v1/models/", api_model, true, Needs::kModels},
    {"POST", "/models/load", api_load_model, false, Needs::kModels},
    {"POST", "/models/unload", api_unload_model, false, Needs::kModels},
    {"GET", "/props", api_props},
    {"GET", "/slots", api_slots},
    {"POST", "/slots/", api_slot_action},  // and a number
    {"GET", "/metrics", api_metrics, false, Needs::kModels},
    {"GET", "/placement", api_placement},
    {"POST", "/placement", api_set_placement, false, Needs::kModel, asked_placement},
    {"POST", "/tokenize", api_tokenize},
    {"POST", "/detokenize", api_detokenize},
    {"POST", "/apply-template", api_apply_template},
    {"POST", "/completion", api_completion},
    {"POST", "/completions", api_completion},
    {"POST", "/infill", api_infill},
    {"POST", "/embedding", api_embeddings},
    {"POST", "/embeddings", api_embeddings},
    {"POST", "/v1/embeddings", api_embeddings},
    {"POST", "/v1/completions", api_openai_completions},
    {"POST", "/chat/completions", api_chat_completions},
    {"POST", "/v1/chat/completions", api_chat_completions},
    {"POST", "/v1/messages", api_messages},
    {"POST", "/v1/messages/count_tokens", api_count_tokens},
    {"POST", "/responses", api_responses},
    {"POST", "/v1/responses", api_responses},
};

bool matches(const Route& route, std::string_view path) {
  return route.path.ends_with('/') ? path.starts_with(route.path) && path.size() > route.path.size()
                                   : path == route.path;
}

// Paths of other servers, and what is nearest to them here.
struct ForeignPath {
  std::string_view path;
  std::string_view use;
};
constexpr ForeignPath kForeignPaths[] = {
    {"/api/chat", "/v1/chat/completions"},
    {"/api/generate", "/v1/completions"},
    {"/api/tags", "/v1/models"},
    {"/api/show", "/props"},
    {"/api/ps", "/v1/models"},
    {"/api/embed", "/v1/embeddings"},
    {"/api/embeddings", "/v1/embeddings"},
    {"/api/version", "/props"},
    {"/generate", "/v1/completions"},
    {"/v1/chat", "/v1/chat/completions"},
    {"/chat", "/v1/chat/completions"},
    {"/v1", "/v1/models"},
};
constexpr std::string_view kRerankPaths[] = {"/rerank", "/reranking", "/v1/rerank", "/v1/reranking"};

// The route that somebody means who writes a path that is none; empty: who knows.
std::string_view meant_route(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) {
    path.remove_suffix(1);
  }
  const auto* foreign = std::ranges::find(kForeignPaths, path, &ForeignPath::path);
  if (foreign != std::end(kForeignPaths)) {
    return foreign->use;
  }
  // A client adds /v1 to an address that ends with it, or knows no route without it.
  const std::string_view inner = path.starts_with("/v1/") ? path.substr(3) : std::string_view();
  for (const std::string_view wanted : {path, inner}) {
    const auto* route = std::ranges::find(kRoutes, wanted, &Route::path);
    if (route != std::end(kRoutes)) {
      return route->path;
    }
  }
  return {};
}

std::string no_such_route(std::string_view path) {
  if (std::ranges::find(kRerankPaths, path) != std::end(kRerankPaths)) {
    return fmt::format("there is no {}: this server does not rerank; /v1/embeddings makes vectors to compare", path);
  }
  const std::string_view meant = meant_route(path);
  return meant.empty() ? fmt::format(
                             "there is no {}; there are /v1/chat/completions, /v1/completions, /v1/responses, "
                             "/v1/messages, /v1/embeddings, /v1/models and llama.cpp's routes",
                             path)
                       : fmt::format("there is no {}; use {}", path, meant);
}

// Of the routes with that path: "GET, HEAD, POST".
std::string methods_of(std::string_view path) {
  std::string methods;
  for (const Route& route : kRoutes) {
    if (matches(route, path)) {
      methods +=
          fmt::format("{}{}{}", methods.empty() ? "" : ", ", route.method, route.method == "GET" ? ", HEAD" : "");
    }
  }
  return methods;
}

std::string random_hex() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

// Compares without telling by its time how much was right.
bool equal_secrets(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  }
  return difference == 0;
}

std::string_view error_type(int status, bool anthropic) {
  switch (status) {
    case 400: return "invalid_request_error";
    case 401: return "authentication_error";
    case 404: return "not_found_error";
    case 413: return anthropic ? "request_too_large" : "invalid_request_error";
    case 429: return "rate_limit_error";
    case 501: return "not_supported_error";
    case 503: return anthropic ? "overloaded_error" : "unavailable_error";
    default: return status < 500 ? "invalid_request_error" : anthropic ? "api_error" : "server_error";
  }
}

// The error of llama.cpp's and OpenAI's routes.
Json error_json(int status, std::string_view message, std::string_view type) {
  return {{"code", status}, {"message", message}, {"type", type}};
}

Status guarded(const std::function<Status()>& fn) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kOutOfMemory, "no memory is left for this request"};
  } catch (const std::exception& error) {
    return {ErrorCode::kInternal, fmt::format("the server failed at this request: {}", error.what())};
  }
}

// The model that a request names. With one model the name is not looked at, and no name means the first.
Result<size_t> model_of(Call& call, const ModelRegistry& models) {
  if (models.size() == 1) {
    return size_t{0};
  }
  std::string name = call.request.query_value("model");
  if (name.empty() && !call.request.body.empty()) {
    ASSIGN_OR_RETURN(const Json* body, call.look_into_body());
    TRY(Fields(*body).read("model", name));
  }
  return name.empty() ? Result<size_t>(0) : models.find(name);
}

void allow_origin(const HttpRequest& request, HttpExchange& exchange) {
  const std::string_view origin = request.header("Origin");
  if (origin.empty()) {
    return;
  }
  exchange.add_header("Access-Control-Allow-Origin", std::string(origin));
  exchange.add_header("Vary", "Origin");
  if (request.method == "OPTIONS") {
    exchange.add_header("Access-Control-Allow-Credentials", "true");
    exchange.add_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    const std::string_view wanted = request.header("Access-Control-Request-Headers");
    exchange.add_header("Access-Control-Allow-Headers", wanted.empty() ? "*" : std::string(wanted));
    exchange.add_header("Access-Control-Max-Age", "86400");
  }
}

}  // namespace

Result<const Json*> Call::look_into_body() {
  if (parsed == nullptr) {
    ASSIGN_OR_RETURN(Json body, parse_json_object(request.body));
    parsed = std::make_shared<Json>(std::move(body));
    request.body = {};  // what waits for a model holds it once
  }
  return parsed.get();
}

Result<Json> Call::take_body() {
  TRY(look_into_body().status());
  Json body = std::move(*parsed);
  parsed.reset();
  return body;
}

void Call::reply_json(const Json& json, int status) const {
  exchange->reply(status, "application/json; charset=utf-8", dump_json(json));
}

Server::Server(ServerSettings settings, Log log)
    : settings_(std::move(settings)),
      log_(std::move(log)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      id_prefix_(random_hex()) {}

void Server::set_models(std::shared_ptr<ModelRegistry> models) {
  const std::lock_guard lock(mutex_);
  models_ = std::move(models);
}

std::shared_ptr<ModelRegistry> Server::models() const {
  const std::lock_guard lock(mutex_);
  return models_;
}

std::string Server::new_id(std::string_view prefix) {
  return fmt::format("{}{}{:08x}", prefix, id_prefix_, n_ids_.fetch_add(1));
}

void Server::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const auto call = std::make_shared<Call>(Call{*this, std::move(request), std::move(exchange), nullptr});
  allow_origin(call->request, *call->exchange);
  Way way;
  Status status = guarded([&] { return admit(*call, way); });
  if (status.ok() && way.route != nullptr && way.route->needs == Needs::kModel && call->model == nullptr) {
    pass_on(call, way);
    return;
  }
  if (status.ok() && way.route != nullptr) {
    status = guarded([&] { return way.route->api(*call); });
  }
  conclude(*call, status);
}

// Answers the failure of a call, and logs a call that does not log itself.
void Server::conclude(Call& call, const Status& status) const {
  if (!status.ok()) {
    reply_error(*call.exchange, status, asks_anthropic(call.request));
    call.logs_itself = false;
  }
  if (!call.logs_itself) {
    log_request(call.request, call.exchange->status(), call.begun, {});
  }
}

// Finds the route of a call and the model that it names. One that only looks at a model gets it here.
Status Server::admit(Call& call, Way& way) const {
  const HttpRequest& request = call.request;
  if (request.method == "OPTIONS") {
    call.exchange->reply(204, "text/plain", "");
    return {};
  }
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  const Route* found = nullptr;
  bool has_path = false;
  for (const Route& candidate : kRoutes) {
    if (matches(candidate, request.path)) {
      has_path = true;
      found = candidate.method == method ? &candidate : found;
    }
  }
  if (!has_path && method == "GET" && settings_.page) {
    ASSIGN_OR_RETURN(const bool is_file, serve_static(settings_.page_folder, request, *call.exchange));
    if (is_file) {
      return {};
    }
  }
  if ((found == nullptr || !found->is_public) && !has_key(request)) {
    call.exchange->add_header("WWW-Authenticate", "Bearer");
    call.exchange->reply(401, "application/json; charset=utf-8",
                         error_body(401,
                                    "the API key is missing or wrong; send it in a header, as \"Authorization: Bearer "
                                    "KEY\" or \"x-api-key: KEY\"",
                                    asks_anthropic(request)));
    return {};
  }
  if (found == nullptr && has_path) {
    const std::string methods = methods_of(request.path);
    call.exchange->add_header("Allow", methods);
    call.exchange->reply(
        405, "application/json; charset=utf-8",
        error_body(405, fmt::format("{} does not take {}; use {}", request.path, request.method, methods),
                   asks_anthropic(request)));
    return {};
  }
  if (found == nullptr) {
    return {ErrorCode::kNotFound, no_such_route(request.path)};
  }
  if (closing_) {
    return {ErrorCode::kCancelled, "the server is shutting down"};
  }
  const std::shared_ptr<ModelRegistry> models = this->models();
  if (models == nullptr && found->needs != Needs::kNothing) {
    return {ErrorCode::kCancelled, "Loading model"};
  }
  way.route = found;
  if (found->needs == Needs::kModel) {
    ASSIGN_OR_RETURN(way.model, model_of(call, *models));
    if (method == "GET") {
      call.model = models->peek(way.model);
      if (call.model == nullptr) {
        return {ErrorCode::kCancelled, fmt::format("model {} is not loaded; POST /models/load, or a request for an "
                                                   "answer, loads it",
                                                   models->list()[way.model].name)};
      }
    }
  }
  return {};
}

// Runs the call when its model is there: here, or later on a handler's thread, since the registry's has models to load.
void Server::pass_on(const std::shared_ptr<Call>& call, const Way& way) const {
  const std::shared_ptr<ModelRegistry> models = this->models();
  const auto go_on = [call, route = way.route](const Result<ModelRegistry::Lease>& lease) {
    Status status = lease.status();
    if (status.ok()) {
      call->model = *lease;
      status = guarded([&] { return route->api(*call); });
    } else if (http_status_of(status) < 500 &&
               !(route->placement != nullptr && status.code() == ErrorCode::kInvalidArgument)) {
      status = {ErrorCode::kIo, status.message()};  // what is wrong with the model is not the client's fault
    }
    call->server.conclude(*call, status);
  };
  if (ModelRegistry::Lease lease = models->take(way.model)) {
    go_on(std::move(lease));
    return;
  }
  LoadPlacement placement;
  const Status asked = guarded([&]() -> Status {
    if (way.route->placement != nullptr) {
      ASSIGN_OR_RETURN(const Json* body, call->look_into_body());
      ASSIGN_OR_RETURN(placement, way.route->placement(*body));
    }
    return {};
  });
  if (!asked.ok()) {
    conclude(*call, asked);
    return;
  }
  call->exchange->on_gone([models] { models->wake(); });
  models->acquire(
      way.model, [call] { return call->exchange->gone(); },
      [call, go_on](const Result<ModelRegistry::Lease>& lease) {
        call->exchange->go_on([go_on, lease] { go_on(lease); });
      },
      std::move(placement));
}

bool Server::has_key(const HttpRequest& request) const {
  if (settings_.api_keys.empty()) {
    return true;
  }
  std::string_view given = request.header("Authorization");
  constexpr std::string_view kBearer = "bearer ";
  const bool is_bearer =
      given.size() >= kBearer.size() && std::equal(kBearer.begin(), kBearer.end(), given.begin(), [](char a, char b) {
        return a == static_cast<char>(b >= 'A' && b <= 'Z' ? b + 32 : b);
      });
  given = is_bearer ? given.substr(kBearer.size()) : request.header("X-Api-Key");
  bool found = false;
  for (const std::string& key : settings_.api_keys) {
    found = equal_secrets(given, key) || found;
  }
  return found;
}

void Server::log_request(const HttpRequest& request, int status, Clock::time_point begun, const LogRow& row) const {
  const double ms = ms_between(begun, Clock::now());
  const bool is_quiet = row.stop.empty() && request.method == "GET" && status < 400;
  const LogLevel level = is_quiet ? LogLevel::kDetail : LogLevel::kInfo;
  if (!log_.wants(level)) {
    return;
  }
  if (settings_.log_json) {
    Json json = {
        {"method", request.method}, {"path", request.path}, {"peer", request.peer}, {"status", status}, {"ms", ms}};
    if (!row.stop.empty()) {
      json.update(Json{{"prompt_tokens", row.n_prompt}, {"cached_tokens", row.n_cached}, {"stop", row.stop}});
    }
    if (!row.stop.empty() && row.generates) {
      json.update(Json{{"first_token_ms", row.first_token_ms},
                       {"tokens", row.n_predicted},
                       {"tokens_per_second", row.tokens_per_s}});
    }
    log_.write(level, dump_json(json));
    return;
  }
  // As JSON has it: what clients send does nothing to a terminal.
  std::string text = fmt::format("{} {} {} {:.0f} ms", request.method, dump_json(request.path), status, ms);
  if (!row.stop.empty()) {
    text += fmt::format(", prompt {} ({} cached)", row.n_prompt, row.n_cached);
    if (row.generates) {
      text += fmt::format(", first token {:.0f} ms, {} tokens, {:.1f} tokens/s", row.first_token_ms, row.n_predicted,
                          row.tokens_per_s);
    }
    text += ", " + row.stop;
  }
  log_.write(level, text);
}

int http_status_of(const Status& status) {
  switch (status.code()) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kInvalidData:
    case ErrorCode::kCacheFull: return 400;
    case ErrorCode::kNotFound: return 404;
    case ErrorCode::kBusy: return 429;
    case ErrorCode::kUnsupported: return 501;
    case ErrorCode::kDoesNotFit:
    case ErrorCode::kCancelled: return 503;
    default: return 500;
  }
}

bool asks_anthropic(const HttpRequest& request) {
  const bool has_header = !request.header("anthropic-version").empty();
  return request.path.starts_with("/v1/messages") || (request.path.starts_with("/v1/models") && has_header);
}

std::string error_body(int status, std::string_view message, bool anthropic) {
  const std::string_view type = error_type(status, anthropic);
  if (anthropic) {
    return dump_json({{"type", "error"}, {"error", {{"type", type}, {"message", message}}}});
  }
  return dump_json({{"error", error_json(status, message, type)}});
}

void reply_error(HttpExchange& exchange, const Status& status, bool anthropic) {
  // As nginx logs it. A client that closed but the sending half of its connection does see it.
  constexpr int kClientClosedRequest = 499;
  const bool has_left = status.code() == ErrorCode::kCancelled && exchange.gone();
  const int code = has_left ? kClientClosedRequest : http_status_of(status);
  const bool never_fits = status.code() == ErrorCode::kDoesNotFit;
  if (code == 501 || never_fits) {  // a server's errors to clients' libraries, which would ask again
    exchange.add_header("x-should-retry", "false");
  } else if (code == 429 || code == 503) {
    exchange.add_header("Retry-After", "1");
  }
  exchange.reply(code, "application/json; charset=utf-8", error_body(code, status.message(), anthropic));
}

// llama.cpp's clients look for the type and its two numbers, Anthropic's for how the message begins. OpenAI's look for
// the code "context_length_exceeded", or for that or "maximum context length is" in the text of the error: they find
// both in the message, since `code` is the number that it is in every error here, as llama.cpp's clients expect.
void reply_too_long(HttpExchange& exchange, const Status& status, int64_t n_prompt, int64_t n_ctx, bool anthropic) {
  const int code = http_status_of(status);
  std::string body;
  if (anthropic) {
    body = error_body(code,
                      fmt::format("prompt is too long: {} tokens > {} maximum; raise --ctx-size (-c) of the server or "
                                  "shorten the prompt",
                                  n_prompt, n_ctx - 1),
                      anthropic);
  } else {
    const std::string message = fmt::format(
        "{} (context_length_exceeded: this model's maximum context length is {} tokens)", status.message(), n_ctx);
    Json error = error_json(code, message, "exceed_context_size_error");
    error["n_prompt_tokens"] = n_prompt;
    error["n_ctx"] = n_ctx;
    body = dump_json({{"error", std::move(error)}});
  }
  exchange.reply(code, "application/json; charset=utf-8", std::move(body));
}

}  // namespace tessera

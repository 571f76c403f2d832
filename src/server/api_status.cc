// What the server says of itself: /health, /v1/models, /props, /slots with their files, /metrics.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sstream>

#include "server/server.h"
#include "server/settings_json.h"

namespace tessera {
namespace {

Json slot_json(const SlotView& view, int64_t n_ctx) {
  Json json = {{"id", view.slot},
               {"n_ctx", n_ctx},
               {"speculative", false},
               {"is_processing", view.request >= 0},
               {"id_task", view.request},
               {"n_held", view.n_held},
               {"n_prompt_tokens", view.n_prompt},
               {"n_prompt_tokens_cache", view.n_cached},
               {"idle_ms", view.idle_ms},
               {"next_token", {{"n_decoded", view.n_predicted}}}};
  if (view.settings != nullptr) {
    json["params"] = settings_json(*view.settings);
  }
  return json;
}

// Families of one value for each model, as scrapers know llama.cpp's.
class MetricPage {
 public:
  /// label: of the model that values are of from now on; empty: none.
  void set_model(std::string label) { label_ = std::move(label); }

  void add(std::string_view name, std::string_view help, prometheus::MetricType type, double value) {
    const std::string full_name = fmt::format("llamacpp:{}", name);
    auto family = std::ranges::find(families_, full_name, &prometheus::MetricFamily::name);
    if (family == families_.end()) {
      family = families_.insert(family, {full_name, std::string(help), type, {}});
    }
    prometheus::ClientMetric metric;
    if (!label_.empty()) {
      metric.label.push_back({"model", label_});
    }
    metric.counter.value = value;
    metric.gauge.value = value;
    family->metric.push_back(metric);
  }

  [[nodiscard]] std::string text() const {
    std::ostringstream text;
    prometheus::TextSerializer().Serialize(text, families_);
    return text.str();
  }

 private:
  std::string label_;
  std::vector<prometheus::MetricFamily> families_;
};

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

// The model that the body of a request must name.
Result<size_t> named_model(Call& call, const ModelRegistry& models) {
  ASSIGN_OR_RETURN(const Json body, call.take_body());
  std::string name;
  TRY(Fields(body).read("model", name));
  if (name.empty()) {
    return Status(ErrorCode::kInvalidArgument, "field \"model\" is missing; it names a model of GET /models");
  }
  return models.find(name);
}

Json model_json(const Call& call, const ModelRegistry& models, size_t i, const ModelView& view) {
  const bool has_failed = view.phase == ModelPhase::kFailed;
  Json status = {{"value", model_phase_name(has_failed ? ModelPhase::kUnloaded : view.phase)}};
  if (has_failed) {
    status["failed"] = true;
    if (call.server.has_key(call.request)) {  // the route is public, and the error may name files
      status["error"] = view.failure.message();
    }
  }
  Json model = {{"id", view.name},
                {"object", "model"},
                {"created", call.server.created()},
                {"owned_by", "tessera"},
                {"status", std::move(status)}};
  if (const ModelRegistry::Lease served = models.peek(i)) {
    const ModelSummary& summary = served->model->summary();
    model["meta"] = {{"vocab_type", served->model->tokenizer().model()},
                     {"n_vocab", summary.n_vocab},
                     {"n_ctx_train", summary.n_ctx_train},
                     {"n_embd", summary.n_embd},
                     {"n_params", summary.n_params},
                     {"size", summary.file_bytes}};
  }
  return model;
}

// The same in Anthropic's form, which says less.
Json anthropic_model_json(const Call& call, const ModelRegistry& models, size_t i, const ModelView& view) {
  const std::chrono::sys_seconds created{std::chrono::seconds(call.server.created())};
  Json model = {{"type", "model"},
                {"id", view.name},
                {"display_name", view.name},
                {"created_at", fmt::format("{:%FT%TZ}", created)},
                {"lifecycle", "active"}};
  if (const ModelRegistry::Lease served = models.peek(i)) {
    model["max_input_tokens"] = served->serving->context().options().n_ctx - 1;  // one is left for the answer
  }
  return model;
}

// The file of a slot: a plain name inside of the folder, so that no request reaches another file.
Result<std::string> slot_file(const Call& call, const std::string& name) {
  const bool is_plain = !name.empty() && name.size() <= 200 && name.front() != '.' &&
                        name.find_first_of("/\\") == std::string::npos && name.find('\0') == std::string::npos;
  if (!is_plain) {
    return Status(ErrorCode::kInvalidArgument, "field \"filename\" must be a plain file name without folders");
  }
  return call.server.settings().slot_save_path + "/" + name;
}

// A folder that went away after the start is the server's fault; a file that is not in it is the client's.
Status blame_folder(const Call& call, const Status& status) {
  std::error_code ignored;
  const std::string& folder = call.server.settings().slot_save_path;
  return status.code() == ErrorCode::kNotFound && !std::filesystem::is_directory(folder, ignored)
             ? Status(ErrorCode::kIo, "the server's folder for slots (--slot-save-path) is gone; make it again")
             : status;
}

}  // namespace

Status api_health(Call& call) {
  if (call.server.models() == nullptr) {
    return {ErrorCode::kCancelled, "Loading model"};
  }
  call.reply_json({{"status", "ok"}});
  return {};
}

Status api_models(Call& call) {
  const std::shared_ptr<ModelRegistry> models = call.server.models();
  const std::vector<ModelView> views = models->list();
  const bool anthropic = asks_anthropic(call.request);
  const auto json_of = anthropic ? anthropic_model_json : model_json;
  Json list = Json::array();
  for (size_t i = 0; i < views.size(); ++i) {
    list.push_back(json_of(call, *models, i, views[i]));
  }
  if (anthropic) {
    call.reply_json({{"data", std::move(list)},
                     {"has_more", false},
                     {"first_id", views.front().name},
                     {"last_id", views.back().name}});
  } else {
    call.reply_json({{"object", "list"}, {"data", std::move(list)}});
  }
  return {};
}

Status api_model(Call& call) {
  const std::shared_ptr<ModelRegistry> models = call.server.models();
  constexpr std::string_view kBefore = "/models/";
  ASSIGN_OR_RETURN(
      const size_t model,
      models->find(std::string_view(call.request.path).substr(call.request.path.find(kBefore) + kBefore.size())));
  const auto json_of = asks_anthropic(call.request) ? anthropic_model_json : model_json;
  call.reply_json(json_of(call, *models, model, models->list()[model]));
  return {};
}

Status api_load_model(Call& call) {
  const std::shared_ptr<ModelRegistry> models = call.server.models();
  ASSIGN_OR_RETURN(const size_t model, named_model(call, *models));
  TRY(models->load(model));
  call.reply_json({{"success", true}});
  return {};
}

Status api_unload_model(Call& call) {
  const std::shared_ptr<ModelRegistry> models = call.server.models();
  ASSIGN_OR_RETURN(const size_t model, named_model(call, *models));
  call.logs_itself = true;
  return models->unload(model, [&server = call.server, request = line_of(call.request), exchange = call.exchange,
                                begun = call.begun](const Status& status) {
    if (status.ok()) {
      exchange->reply(200, "application/json; charset=utf-8", dump_json({{"success", true}}));
    } else {
      reply_error(*exchange, status, asks_anthropic(request));
    }
    server.log_request(request, exchange->status(), begun, {});
  });
}

Status api_props(Call& call) {
  const ServerSettings& settings = call.server.settings();
  const ServedModel& served = *call.model;
  const Context& context = served.serving->context();
  const Tokenizer& tokenizer = served.model->tokenizer();
  const auto text_of = [&](std::optional<int32_t> id) {
    return id ? std::string(tokenizer.piece(*id)) : std::string();
  };
  call.reply_json({{"default_generation_settings",
                    {{"params", settings_json(served.defaults)}, {"n_ctx", context.options().n_ctx}}},
                   {"total_slots", context.options().n_seq_max},
                   {"model_alias", served.name},
                   {"model_path", served.path},
                   {"modalities", {{"vision", false}, {"audio", false}}},
                   {"chat_template", served.template_source},
                   {"chat_template_caps",
                    {{"supports_tools", served.chat_format.tools != ToolStyle::kNone},
                     {"supports_reasoning",
                      !served.chat_format.think_end.empty() || served.chat_format.tools == ToolStyle::kHarmony}}},
                   {"bos_token", text_of(tokenizer.bos())},
                   {"eos_token", text_of(tokenizer.eos())},
                   {"build_info", settings.build},
                   {"is_sleeping", false}});
  return {};
}

Status api_slots(Call& call) {
  if (!call.server.settings().slots_route) {
    return {ErrorCode::kUnsupported, "this server was started with --no-slots"};
  }
  const std::vector<SlotView> views = call.model->serving->slots();
  Json list = Json::array();
  bool has_idle = false;
  for (const SlotView& view : views) {
    list.push_back(slot_json(view, call.model->serving->context().options().n_ctx));
    has_idle = has_idle || view.request < 0;
  }
  if (!has_idle && !call.request.query_value("fail_on_no_slot").empty()) {
    return {ErrorCode::kCancelled, "no slot available"};
  }
  call.reply_json(list);
  return {};
}

Status api_slot_action(Call& call) {
  const std::string_view number = std::string_view(call.request.path).substr(std::string_view("/slots/").size());
  int32_t slot = -1;
  const auto [rest, error] = std::from_chars(number.data(), number.data() + number.size(), slot);
  if (error != std::errc() || rest != number.data() + number.size() || slot < 0) {
    return {ErrorCode::kInvalidArgument, "the path must be /slots/ and the number of a slot"};
  }
  Serving& serving = *call.model->serving;
  const std::string action = call.request.query_value("action");
  if (action == "erase") {
    ASSIGN_OR_RETURN(const int64_t n_erased, serving.erase_slot(slot));
    call.reply_json({{"id_slot", slot}, {"n_erased", n_erased}});
    return {};
  }
  if (action != "save" && action != "restore") {
    return {ErrorCode::kInvalidArgument, "the parameter action must be save, restore or erase"};
  }
  if (call.server.settings().slot_save_path.empty()) {
    return {ErrorCode::kUnsupported, "this server was started without --slot-save-path"};
  }
  ASSIGN_OR_RETURN(const Json body, call.take_body());
  std::string name;
  TRY(Fields(body).read("filename", name));
  ASSIGN_OR_RETURN(const std::string path, slot_file(call, name));
  const bool saves = action == "save";
  const Result<Serving::SlotFile> file = saves ? serving.save_slot(slot, path) : serving.restore_slot(slot, path);
  if (!file.ok()) {
    return blame_folder(call, file.status());
  }
  call.reply_json({{"id_slot", slot},
                   {"filename", name},
                   {saves ? "n_saved" : "n_restored", file->n_tokens},
                   {saves ? "n_written" : "n_read", file->n_bytes},
                   {"timings", {{saves ? "save_ms" : "restore_ms", file->ms}}}});
  return {};
}

namespace {

void add_metrics(MetricPage& page, const ServedModel& served) {
  const ServingCounters c = served.serving->counters();
  const auto counter = [&](std::string_view name, std::string_view help, double value) {
    page.add(name, help, prometheus::MetricType::Counter, value);
  };
  const auto gauge = [&](std::string_view name, std::string_view help, double value) {
    page.add(name, help, prometheus::MetricType::Gauge, value);
  };
  const auto as_double = [](auto n) { return static_cast<double>(n); };
  const double prompt_s = c.prompt_ms / 1000;
  const double predicted_s = c.predicted_ms / 1000;
  counter("prompt_tokens_total", "Prompt tokens read", as_double(c.prompt_tokens));
  counter("prompt_tokens_cached_total", "Prompt tokens that were there already", as_double(c.cached_tokens));
  counter("prompt_seconds_total", "Time until first tokens, over all requests", prompt_s);
  counter("tokens_predicted_total", "Tokens generated", as_double(c.predicted_tokens));
  counter("tokens_predicted_seconds_total", "Time of generation, over all requests", predicted_s);
  counter("n_decode_total", "Batches decoded", as_double(c.n_steps));
  counter("requests_total", "Requests taken", as_double(c.n_requests));
  counter("requests_refused_total", "Requests refused by a full queue", as_double(c.n_refused));
  counter("requests_preempted_total", "Requests that gave up their pages and were read again",
          as_double(c.n_preempted));
  counter("sequences_evicted_total", "Idle sequences dropped for room", as_double(c.n_evicted));
  counter("prefixes_shared_total", "Prefixes shared with another slot", as_double(c.n_forks));
  gauge("prompt_tokens_seconds", "Prompt tokens per second, average", ratio(as_double(c.prompt_tokens), prompt_s));
  gauge("predicted_tokens_seconds", "Tokens generated per second and request, average",
        ratio(as_double(c.predicted_tokens), predicted_s));
  gauge("requests_processing", "Requests that have a slot", as_double(c.n_running));
  gauge("requests_deferred", "Requests that wait for a slot", as_double(c.n_waiting));
  gauge("n_tokens_max", "Longest sequence so far", as_double(c.n_tokens_max));
  gauge("n_busy_slots_per_decode", "Slots in use, average over batches",
        ratio(as_double(c.n_busy_slots), as_double(c.n_steps)));
  gauge("kv_pages_used", "Pages of the KV cache in use", as_double(c.kv_pages_used));
  gauge("kv_pages_max", "Pages of the KV cache", as_double(c.kv_pages_max));
  counter("prompt_cache_kept_total", "Prompts kept beside the slots", as_double(c.cache.n_kept));
  counter("prompt_cache_keep_seconds_total", "Time for that, in which no batch ran", c.cache.keep_ms / 1000);
  counter("prompt_cache_restored_total", "Kept prompts brought back to slots", as_double(c.cache.n_restored));
  counter("prompt_cache_restored_tokens_total", "Tokens that they brought", as_double(c.cache.restored_tokens));
  counter("prompt_cache_restore_seconds_total", "Time for that, in which no batch ran", c.cache.restore_ms / 1000);
  counter("prompt_cache_failed_total", "Kept prompts that were lost", as_double(c.cache.n_failed));
  gauge("prompt_cache_states", "Kept prompts", as_double(c.cache.n_states));
  gauge("prompt_cache_ram_bytes", "Host memory that they take", as_double(c.cache.ram_bytes));
  gauge("prompt_cache_dir_bytes", "Bytes in the folder of --cache-dir", as_double(c.cache.folder_bytes));
  const SwitchTotals switches = served.placement->totals();
  counter("placement_switches_total", "Switches of the placement", as_double(switches.n_switches));
  counter("placement_switch_failures_total", "Switches that failed and were undone", as_double(switches.n_failed));
  counter("placement_switch_seconds_total", "Time of switches, without waiting for their turn", switches.seconds);
  counter("placement_switch_bytes_total", "Bytes that switches moved to another device",
          as_double(switches.moved_bytes));
  gauge("placement_version", "One more after every switch", as_double(served.placement->view()->version));
}

}  // namespace

Status api_metrics(Call& call) {
  if (!call.server.settings().metrics_route) {
    return {ErrorCode::kUnsupported, "this server was started without --metrics"};
  }
  const std::shared_ptr<ModelRegistry> models = call.server.models();
  MetricPage page;
  for (size_t i = 0; i < models->size(); ++i) {
    if (const ModelRegistry::Lease served = models->peek(i)) {
      page.set_model(models->size() > 1 ? served->name : "");
      add_metrics(page, *served);
    }
  }
  call.exchange->reply(200, "text/plain; version=0.0.4; charset=utf-8", page.text());
  return {};
}

}  // namespace tessera

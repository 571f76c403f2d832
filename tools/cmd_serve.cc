// `tessera serve`: opens the port, loads the model while /health says so, and answers requests until a signal comes.
// Several models are loaded when requests name them (server/model_registry.h).

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/proc.h"
#include "base/threads.h"
#include "build_commit.h"
#include "commands.h"
#include "common.h"
#include "device/registry.h"
#include "doctor.h"
#include "fit_flags.h"
#include "generation.h"
#include "gguf/gguf.h"
#include "metadata_flags.h"
#include "model_specs.h"
#include "policy_flags.h"
#include "sampling_flags.h"
#include "server/http_server.h"
#include "server/model_registry.h"
#include "server/server.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kFlushTime{5};  // for the last replies to reach their clients

// path: "": the flag was not given.
Status check_folder(std::string_view flag, const std::string& path) {
  std::error_code ignored;
  return path.empty() || std::filesystem::is_directory(path, ignored)
             ? Status()
             : Status(ErrorCode::kInvalidArgument, fmt::format("{} {} is no folder", flag, path));
}

Result<ServerSettings> server_settings(const ParsedFlags& flags) {
  ServerSettings settings;
  settings.slot_save_path = flags.get_string("slot-save-path");
  TRY(check_folder("--slot-save-path", settings.slot_save_path));
  settings.build = fmt::format("tessera {} ({})", TESSERA_VERSION, kBuildCommit);
  settings.page = flags.get_bool("webui");
  settings.page_folder = flags.get_string("path");
  TRY(check_folder("--path", settings.page_folder));
  settings.slots_route = flags.get_bool("slots");
  settings.metrics_route = flags.get_bool("metrics");
  settings.log_json = flags.get_string("log-format") == "json";
  settings.ping = std::chrono::seconds(flags.get_uint("sse-ping-interval"));
  const auto add_keys = [&](const std::string& list, char separator) {
    for (size_t begin = 0; begin < list.size();) {
      const size_t end = std::min(list.find(separator, begin), list.size());
      settings.api_keys.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  };
  for (const std::string& list : flags.get_texts("api-key")) {
    add_keys(list, ',');
  }
  if (flags.given("api-key-file")) {
    ASSIGN_OR_RETURN(const std::string text, read_input(flags.get_string("api-key-file")));
    add_keys(text, '\n');
  }
  for (std::string& key : settings.api_keys) {
    key.erase(key.find_last_not_of(" \t\r") + 1);
  }
  std::erase(settings.api_keys, "");
  if (settings.api_keys.empty() && (flags.given("api-key") || flags.given("api-key-file"))) {
    return Status(ErrorCode::kInvalidArgument, "--api-key and --api-key-file name no key");
  }
  return settings;
}

// Of the whole server: its models share the host memory, and the folder.
KeptPromptsOptions cache_options(const ParsedFlags& flags) {
  constexpr int64_t kDefaultMib = 8192;
  const auto n_pages = static_cast<uint64_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  const auto quarter_mib = static_cast<int64_t>(n_pages * page_bytes() / 4 >> 20);
  const auto bytes = [](int64_t mib) {
    return mib < 0 ? std::numeric_limits<uint64_t>::max() : static_cast<uint64_t>(mib) << 20;
  };
  KeptPromptsOptions options;
  if (const int64_t mib = flags.given("cache-ram") ? flags.get_int("cache-ram") : std::min(kDefaultMib, quarter_mib);
      mib != 0) {
    options.ram = make_prompt_ram(bytes(mib));
  }
  options.folder = flags.get_string("cache-dir");
  options.folder_bytes = bytes(flags.get_int("cache-dir-max"));
  return options;
}

HttpServerOptions http_options(const ParsedFlags& flags) {
  HttpServerOptions options;
  options.hosts = flags.get_string_list("host");
  options.port = static_cast<uint16_t>(flags.get_uint("port"));
  options.n_handlers = static_cast<int>(flags.get_uint("threads-http"));
  options.limits.body_bytes = flags.get_bytes("max-body");
  options.limits.n_connections = static_cast<int64_t>(flags.get_uint("max-connections"));
  options.limits.idle = std::chrono::seconds(flags.get_uint("idle-timeout"));
  options.limits.unread_bytes = flags.get_bytes("max-unread");
  options.limits.read = options.limits.write = std::chrono::seconds(flags.get_uint("timeout"));
  return options;
}

// Measures first where the policy needs it: that switches, too.
Status open_placement(const ParsedFlags& flags, const ModelOptions& options, Context& context, const Log& log,
                      const std::atomic<bool>& interrupted, ServedModel& served) {
  TransitionOptions transition;
  transition.staging_bytes = flags.get_bytes("transition-staging");
  std::array<PlacementRequest, 2> candidates = policy_candidates(options.tensor_split);
  ASSIGN_OR_RETURN(std::optional<SplitMeasures> measures,
                   measures_by_flags(flags, options, context, candidates, transition, log, &interrupted));
  transition.ahead_bytes = flags.get_bytes("transition-ahead");
  ASSIGN_OR_RETURN(served.placement, LivePlacement::start(served.model, transition, log));
  if (measures) {
    served.placement->set_policy(std::move(*measures), std::move(candidates));
  }
  return {};
}

Result<std::shared_ptr<ServedModel>> load_served(const ModelSpec& spec, ModelOptions options,
                                                 const KeptPromptsOptions& cache, const Log& log,
                                                 const std::atomic<bool>& interrupted) {
  const ParsedFlags& flags = spec.flags;
  auto served = std::make_shared<ServedModel>();
  served->name = spec.name;
  served->path = options.path;
  served->reasoning.format = flags.get_string("reasoning-format");
  served->reasoning.budget = flags.get_int("reasoning-budget");
  served->reasoning.template_kwargs = flags.get_string("chat-template-kwargs");
  TRY(check_reasoning(served->reasoning));
  ASSIGN_OR_RETURN(served->model, load_model(options, log, &interrupted));
  ASSIGN_OR_RETURN(served->template_source, template_source(flags, *served->model));
  if (served->template_source.empty()) {
    log.info(fmt::format("note: {} has no chat template; ChatML is used", served->name));
  }
  ASSIGN_OR_RETURN(ChatTemplate chat_template, served->model->chat_template(served->template_source));
  served->chat_template = std::make_unique<ChatTemplate>(std::move(chat_template));
  served->chat_format = detect_chat_format(served->template_source);
  ASSIGN_OR_RETURN(GenerateOptions generation, generate_options(flags, *served->model));
  // A grammar that is wrong is told here, and not to everybody who asks.
  TRY(check_generation(*served->model, generation));
  served->defaults.sampling = std::move(generation.sampler);
  served->defaults.max_tokens = generation.max_tokens;
  served->defaults.ignore_eos = generation.ignore_eos;
  served->defaults.context_shift = generation.context_shift;
  served->defaults.n_keep = generation.n_keep;
  served->defaults.stop = std::move(generation.stop_words);
  if (!flags.given("embeddings")) {
    options.context.embeddings = is_embedding_model(*served->model);
  }
  if (options.context.embeddings) {
    ASSIGN_OR_RETURN(served->pooling, chosen_pooling(flags, *served->model));
  }
  served->spm_infill = flags.get_bool("spm-infill");
  ASSIGN_OR_RETURN(std::unique_ptr<Context> context, Context::create(served->model, options.context));
  TRY(open_placement(flags, options, *context, log, interrupted, *served));
  ServingOptions serving;
  if (served->placement->policy().measures) {
    serving.before_step = [placement = served->placement](const ServingLoad& load) {
      return placement->before_step(load);
    };
  }
  serving.n_queue = static_cast<int64_t>(flags.get_uint("queue-size"));
  serving.batch_invariant = flags.get_bool("batch-invariant");
  serving.cache = cache;
  ASSIGN_OR_RETURN(served->serving, Serving::start(std::move(context), serving, log));
  return served;
}

// Loads models as their specs say.
class SpecSource final : public ModelSource {
 public:
  SpecSource(std::vector<ModelSpec> specs, KeptPromptsOptions cache, Log log)
      : specs_(std::move(specs)),
        cache_(std::move(cache)),
        log_(std::move(log)),
        machine_bytes_(available_devices().front().available_bytes) {}

  Result<std::vector<DeviceClaim>> count(size_t model, const LoadPlacement& placement) override {
    std::vector<DeviceClaim> claims;
    if (specs_.size() > 1) {
      ASSIGN_OR_RETURN(const ModelOptions options, options_of(model, placement, Log()));
      ASSIGN_OR_RETURN(const std::vector<FitDevice> devices, count_model(options));
      for (const FitDevice& device : devices) {
        claims.push_back({device.name, device.needs.front().total(), device.budget_bytes});
      }
    }
    return claims;
  }

  Result<std::shared_ptr<ServedModel>> load(size_t model, const LoadPlacement& placement,
                                            const std::atomic<bool>& cancelled) override {
    ASSIGN_OR_RETURN(ModelOptions options, options_of(model, placement, log_));
    options.memory_ledger = ledger_;
    return load_served(specs_[model], options, cache_, log_, cancelled);
  }

  std::vector<DeviceClaim> present(size_t /*model*/, const ServedModel& served) override {
    std::vector<DeviceClaim> claims;
    for (const DeviceUse& use : served.placement->view()->devices) {
      claims.push_back({use.name, use.used_bytes(), use.budget_bytes});
    }
    return claims;
  }

 private:
  // What a model is loaded with, its context included.
  [[nodiscard]] Result<ModelOptions> options_of(size_t model, const LoadPlacement& placement, const Log& log) const {
    const ParsedFlags& flags = specs_[model].flags;
    ModelOptions options = model_options(flags);
    options.split_mode = placement.split_mode.value_or(options.split_mode);
    options.tensor_split = placement.tensor_split.value_or(options.tensor_split);
    options.needs_text = true;
    options.context.n_seq_max = static_cast<int32_t>(flags.get_uint("parallel"));
    options.context.n_kv_tokens = ContextOptions::kAsOne;
    options.context.embeddings = flags.get_bool("embeddings");
    if (specs_.size() > 1 && options.device_memory.empty()) {
      // One budget for all models: what is free later depends on which of them are loaded.
      options.device_memory = {std::max<uint64_t>(machine_bytes_ / std::max<size_t>(options.devices.size(), 1), 1)};
    }
    TRY(apply_fit(flags, options, false, log));
    return options;
  }

  const std::vector<ModelSpec> specs_;
  const KeptPromptsOptions cache_;
  const Log log_;
  const uint64_t machine_bytes_;  // free when the server began
  const std::shared_ptr<MemoryLedger> ledger_ = std::make_shared<MemoryLedger>();
};

Result<std::shared_ptr<ModelRegistry>> start_registry(const ParsedFlags& flags, const Log& log) {
  ASSIGN_OR_RETURN(std::vector<ModelSpec> specs, model_specs(flags));
  if (specs.size() == 1) {  // before the port is taken; of several, one that is wrong keeps no other from being served
    TRY(GgufFile::open(specs[0].flags.get_string("model")).status());
  }
  std::vector<std::string> names;
  for (const ModelSpec& spec : specs) {
    names.push_back(spec.name);
    for (const std::string& note : spec.flags.notes()) {
      log.info(specs.size() > 1 ? fmt::format("{}: {}", spec.name, note) : note);
    }
    const std::string path = spec.flags.get_string("model");
    if (std::error_code ignored; specs.size() > 1 && !std::filesystem::exists(path, ignored)) {
      log.warning(fmt::format("{}: there is no file {}", spec.name, quote(path)));
    }
  }
  ModelRegistryOptions options;
  options.models_max = static_cast<int64_t>(flags.get_uint("models-max"));
  options.wait = std::chrono::seconds(flags.get_uint("models-wait"));
  return ModelRegistry::start(std::move(names),
                              std::make_unique<SpecSource>(std::move(specs), cache_options(flags), log), options, log);
}

// SIGINT and SIGTERM, blocked in every thread that is started while this exists, and waited for here.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~StopSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Result: which one came.
  int wait() const {
    int signal = 0;
    sigwait(&signals_, &signal);
    return signal;
  }
  /// From now on a signal ends the process, if the calling thread has not ended before.
  void let_through() const { pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr); }
  /// Ends wait() from another thread.
  static void raise() { kill(getpid(), SIGTERM); }

 private:
  sigset_t signals_ = {};
  sigset_t before_ = {};
};

// While this exists, the next signal ends the process at once, with a line that says which requests that cuts off.
class SecondSignal {
 public:
  static Result<std::unique_ptr<SecondSignal>> expect(const StopSignals& signals, std::shared_ptr<ModelRegistry> models,
                                                      Log log) {
    std::unique_ptr<SecondSignal> second(new SecondSignal(signals, std::move(models), std::move(log)));
    ASSIGN_OR_RETURN(second->thread_, start_thread("signals", [self = second.get()] { self->run(); }));
    return second;
  }
  ~SecondSignal() {
    if (thread_.joinable()) {
      over_ = true;
      pthread_kill(thread_.native_handle(), SIGTERM);
      thread_.join();
      signals_.let_through();  // what is torn down now can be cut short
    }
  }
  SecondSignal(const SecondSignal&) = delete;
  SecondSignal& operator=(const SecondSignal&) = delete;

 private:
  SecondSignal(const StopSignals& signals, std::shared_ptr<ModelRegistry> models, Log log)
      : signals_(signals), models_(std::move(models)), log_(std::move(log)) {}

  void run() const {
    const int signal = signals_.wait();
    if (over_) {
      return;
    }
    signals_.let_through();  // a third one ends what waits for somebody to read the line
    int64_t n_running = 0;
    int64_t n_waiting = 0;
    for (size_t i = 0; i < models_->size(); ++i) {
      if (const ModelRegistry::Lease served = models_->peek(i)) {
        const ServingCounters counters = served->serving->counters();
        n_running += counters.n_running;
        n_waiting += counters.n_waiting;
      }
    }
    log_.warning(
        fmt::format("a second signal: ending at once; requests cut off: {} running, {} waiting", n_running, n_waiting));
    std::signal(signal, SIG_DFL);  // a shell's background job ignores SIGINT
    kill(getpid(), signal);
  }

  const StopSignals& signals_;
  const std::shared_ptr<ModelRegistry> models_;
  const Log log_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

// Lets requests end for so long, then cancels them.
void drain(const ModelRegistry& models, std::chrono::seconds grace, const Log& log) {
  const auto deadline = std::chrono::steady_clock::now() + grace;
  for (size_t i = 0; i < models.size(); ++i) {
    if (const ModelRegistry::Lease served = models.peek(i)) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (const Status drained = served->serving->drain(std::max(left, std::chrono::milliseconds(0))); !drained.ok()) {
        log.warning(drained.message());
      }
    }
  }
}

// address: one of HttpServer::addresses().
bool is_of_this_machine(std::string_view address) {
  return address.starts_with("unix:") || address.starts_with("http://127.") || address.starts_with("http://[::1]");
}

// What `tessera doctor` would advise where the server could not listen.
Status with_advice(const Status& failed, const HttpServerOptions& options) {
  for (const std::string& host : options.hosts) {
    if (const Check check = check_address(host, options.port); !check.to_do.empty()) {
      return {failed.code(), fmt::format("{}; {}", failed.message(), check.to_do)};
    }
  }
  return failed;
}

Result<std::unique_ptr<HttpServer>> start_http(const ParsedFlags& flags, Server& server) {
  const HttpServerOptions options = http_options(flags);
  auto http = HttpServer::start(
      options,
      [&server](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
        server.handle(std::move(request), std::move(exchange));
      },
      [](int status, std::string_view message) { return error_body(status, message); });
  return http.ok() ? std::move(http) : with_advice(http.status(), options);
}

}  // namespace

Status check_serve(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<ModelSpec> specs, model_specs(flags));
  for (const ModelSpec& spec : specs) {
    TRY(check_policy_flags(spec.flags));
    TRY(check_metadata_flags(spec.flags));
    TRY(check_template_flags(spec.flags));
    TRY(check_sampling_flags(spec.flags));
  }
  return {};
}

Status cmd_serve(const ParsedFlags& flags) {
  const Log log = command_log(flags);
  ASSIGN_OR_RETURN(ServerSettings settings, server_settings(flags));
  const bool has_keys = !settings.api_keys.empty();
  const StopSignals signals;
  Server server(std::move(settings), log);
  ASSIGN_OR_RETURN(const std::shared_ptr<ModelRegistry> models, start_registry(flags, log));
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> http, start_http(flags, server));
  for (const std::string& address : http->addresses()) {
    log.info("listening on " + address);
    if (!has_keys && !is_of_this_machine(address)) {
      log.warning(fmt::format("whoever reaches {} can use this server; --api-key-file FILE restricts it", address));
    }
  }
  std::atomic<bool> interrupted = false;
  Status loaded;
  const auto take_requests = [&] {
    server.set_models(models);
    log.info("ready");
  };
  if (models->size() > 1) {
    take_requests();
  } else {
    models->acquire(0, {}, [&](const Result<ModelRegistry::Lease>& served) {
      loaded = served.status();
      if (served.ok()) {
        take_requests();
      } else if (!interrupted) {
        StopSignals::raise();
      }
    });
  }
  signals.wait();
  interrupted = true;
  const auto second = SecondSignal::expect(signals, models, log);
  if (!second.ok()) {
    signals.let_through();  // without a word, then
  }
  server.begin_shutdown();
  models->stop();
  for (size_t i = 0; i < models->size(); ++i) {
    if (const ModelRegistry::Lease served = models->peek(i)) {
      served->placement->stop();
    }
  }
  if (loaded.ok()) {
    log.info(fmt::format("shutting down; requests that run have {} s", flags.get_uint("shutdown-grace")));
  }
  drain(*models, std::chrono::seconds(flags.get_uint("shutdown-grace")), log);
  http->stop(kFlushTime);
  for (size_t i = 0; i < models->size(); ++i) {
    if (const ModelRegistry::Lease served = models->peek(i)) {
      served->serving->stop();
    }
  }
  if (loaded.ok() || loaded.code() == ErrorCode::kCancelled) {
    return {};
  }
  return {loaded.code(), "nothing can be served: the model was not loaded"};  // why, the registry has logged
}

}  // namespace tessera

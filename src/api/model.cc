// tessera.h: devices of the machine, models, placement.

#include <fmt/format.h>

#include "api/handles.h"
#include "base/threads.h"
#include "device/registry.h"
#include "runtime/sampler_options.h"

namespace tessera::api {
namespace {

// What a plan of NULL counts besides weights: as good as nothing.
constexpr ContextOptions kSmallestContext = {.n_ctx = 1, .n_batch = 1, .n_ubatch = 1};

tsr_model_options default_model_options() {
  tsr_model_options options = {};
  options.log_least = TSR_LOG_INFO;
  return options;
}

Result<std::vector<std::string>> texts_of(const char* const* given, size_t n, const char* field) {
  ASSIGN_OR_RETURN(const auto elements, array_argument(given, n, field));
  std::vector<std::string> texts;
  for (const char* element : elements) {
    if (element == nullptr) {
      return Status(ErrorCode::kInvalidArgument, fmt::format("an element of {} is NULL", field));
    }
    texts.emplace_back(element);
  }
  return texts;
}

Status read_home_options(const tsr_model_options& given, ModelOptions& options) {
  if (given.n_cpu_moe < 0) {
    return {ErrorCode::kInvalidArgument, fmt::format("n_cpu_moe is {}; it counts layers", given.n_cpu_moe)};
  }
  if (given.expert_slots < 0 || given.expert_slots > kMaxExpertSlots) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("expert_slots is {}; possible are 0 to {}", given.expert_slots, kMaxExpertSlots)};
  }
  ASSIGN_OR_RETURN(options.override_tensor,
                   texts_of(given.override_tensor, given.n_override_tensor, "override_tensor"));
  options.n_cpu_moe = given.n_cpu_moe;
  options.n_expert_slots = given.expert_slots;
  return {};
}

Result<ModelOptions> model_options(const tsr_model_options& given) {
  ModelOptions options;
  ASSIGN_OR_RETURN(options.devices, texts_of(given.devices, given.n_devices, "devices"));
  ASSIGN_OR_RETURN(const auto budgets, array_argument(given.device_memory, given.n_device_memory, "device_memory"));
  options.device_memory.assign(budgets.begin(), budgets.end());
  ASSIGN_OR_RETURN(const auto shares, array_argument(given.tensor_split, given.n_tensor_split, "tensor_split"));
  options.tensor_split.assign(shares.begin(), shares.end());
  options.split_mode = option_or(given.split_mode, options.split_mode.c_str());
  options.kernels = option_or(given.kernels, options.kernels.c_str());
  options.cpu_isa = option_or(given.cpu_isa, options.cpu_isa.c_str());
  TRY(read_home_options(given, options));
  options.cpu_mask = option_or(given.cpu_mask, "");
  options.cpu_range = option_or(given.cpu_range, "");
  options.cpu_strict = given.cpu_strict;
  options.numa = option_or(given.numa, options.numa.c_str());
  options.n_cuts = given.n_cuts;
  TRY(check_field("n_threads", given.n_threads, 0, kMaxThreads));
  options.n_threads = given.n_threads;
  options.vocab_only = given.vocab_only;
  options.context = kSmallestContext;
  if (given.planned_context != nullptr) {
    ASSIGN_OR_RETURN(options.context, context_options(given.planned_context));
  }
  return options;
}

Result<Log> log_to(const tsr_model_options& given) {
  if (given.log_least < TSR_LOG_DETAIL || given.log_least > TSR_LOG_WARNING) {
    return Status(ErrorCode::kInvalidArgument, "log_least is none of TSR_LOG_DETAIL, TSR_LOG_INFO, TSR_LOG_WARNING");
  }
  if (given.log == nullptr) {
    return Log();
  }
  const auto sink = [log = given.log, user = given.log_user](LogLevel level, std::string_view message) {
    log(static_cast<tsr_log_level>(level), with_member_names(message).c_str(), user);
  };
  return Log(sink, static_cast<LogLevel>(given.log_least));
}

static_assert(static_cast<int>(LogLevel::kDetail) == TSR_LOG_DETAIL);
static_assert(static_cast<int>(LogLevel::kInfo) == TSR_LOG_INFO);
static_assert(static_cast<int>(LogLevel::kWarning) == TSR_LOG_WARNING);

std::unique_ptr<tsr_model> make_handle(std::shared_ptr<Model> model) {
  auto handle = std::make_unique<tsr_model>();
  for (const std::string_view key : model->metadata_keys()) {
    handle->metadata_keys.emplace_back(key);
  }
  for (const SamplerStep step : model->recommended_sampling().samplers) {
    handle->recommended_samplers += handle->recommended_samplers.empty() ? "" : ";";
    handle->recommended_samplers += sampler_step_name(step);
  }
  if (model->text_status().ok()) {
    const Tokenizer& tokenizer = model->tokenizer();
    handle->vocab_model = tokenizer.model();
    handle->pre_tokenizer = tokenizer.pre_tokenizer();
    for (const int64_t id : tokenizer.suppress_tokens()) {
      handle->suppress_ids.push_back(static_cast<int32_t>(id));
    }
  }
  handle->model = std::move(model);
  return handle;
}

tsr_model_info info_of(const Model& model) {
  const ModelSummary& s = model.summary();
  tsr_model_info info = {};
  info.architecture = s.architecture.c_str();
  info.name = s.name.c_str();
  info.split_mode = s.split_mode.c_str();
  info.kernel_class = s.kernel_class.c_str();
  info.cpu_isa = s.cpu_isa.c_str();
  info.chat_template = model.chat_template_source().c_str();
  info.n_layer = s.n_layer;
  info.n_embd = s.n_embd;
  info.n_head = s.n_head;
  info.n_kv_head = s.n_kv_head;
  info.n_vocab = s.n_vocab;
  info.n_ctx_train = s.n_ctx_train;
  info.n_cuts = s.n_cuts;
  info.n_layers_attn_cut = s.n_layers_attn_cut;
  info.n_layers_ffn_cut = s.n_layers_ffn_cut;
  info.file_bytes = s.file_bytes;
  info.placement_version = s.placement_version;
  info.load_ms = s.load_ms;
  info.has_text = model.text_status().ok();
  info.can_decode = s.n_vocab > 0;
  return info;
}

}  // namespace
}  // namespace tessera::api

using namespace tessera;
using namespace tessera::api;

tsr_status tsr_list_devices(tsr_device_info** devices, size_t struct_size, size_t* n) {
  return guarded([&]() -> Status {
    TRY(need_output(devices, "devices"));
    TRY(need_output(n, "n"));
    const std::vector<AvailableDevice> available = available_devices();
    std::vector<tsr_device_info> rows;
    for (const AvailableDevice& device : available) {
      rows.push_back({0, device.name.c_str(), device.description.c_str(), device.n_threads, device.memory_bytes,
                      device.available_bytes});
    }
    return give_list(std::move(rows), {&tsr_device_info::name, &tsr_device_info::description}, struct_size,
                     "tsr_device_info", devices, n);
  });
}

tsr_status tsr_model_options_init(tsr_model_options* options, size_t struct_size) {
  return guarded([&] { return init_struct(options, struct_size, default_model_options(), "tsr_model_options"); });
}

tsr_status tsr_model_load(const char* path, const tsr_model_options* options, tsr_model** model) {
  return guarded([&]() -> Status {
    TRY(need_output(model, "model"));
    TRY(need(path, "path"));
    tsr_model_options given = default_model_options();
    if (options != nullptr) {
      ASSIGN_OR_RETURN(given, read_struct(options, "tsr_model_options"));
    }
    ASSIGN_OR_RETURN(ModelOptions wanted, model_options(given));
    ASSIGN_OR_RETURN(const Log log, log_to(given));
    wanted.path = path;
    LoadProgress progress;
    if (given.progress != nullptr) {
      progress = [&given](double fraction) { return given.progress(fraction, given.progress_user); };
    }
    ASSIGN_OR_RETURN(std::shared_ptr<Model> loaded, Model::load(wanted, log, progress));
    *model = make_handle(std::move(loaded)).release();
    return {};
  });
}

void tsr_model_free(tsr_model* model) {
  delete model;
}

tsr_status tsr_model_get_info(const tsr_model* model, tsr_model_info* info, size_t struct_size) {
  return guarded([&]() -> Status {
    TRY(need(model, "model"));
    return write_struct(info, struct_size, info_of(*model->model), "tsr_model_info");
  });
}

tsr_status tsr_model_n_metadata(const tsr_model* model, size_t* n) {
  return guarded([&]() -> Status {
    TRY(need_output(n, "n"));
    TRY(need(model, "model"));
    *n = model->metadata_keys.size();
    return {};
  });
}

tsr_status tsr_model_metadata_key(const tsr_model* model, size_t index, const char** key) {
  return guarded([&]() -> Status {
    TRY(need_output(key, "key"));
    TRY(need(model, "model"));
    if (index >= model->metadata_keys.size()) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("metadata key {} of a file with {}", index, model->metadata_keys.size())};
    }
    *key = model->metadata_keys[index].c_str();
    return {};
  });
}

tsr_status tsr_model_metadata(const tsr_model* model, const char* key, char** value, size_t* n_bytes) {
  return guarded([&]() -> Status {
    TRY(need_sized_output(value, "value", n_bytes));
    TRY(need(model, "model"));
    TRY(need(key, "key"));
    ASSIGN_OR_RETURN(const std::string text, model->model->metadata_text(key));
    give_text(text, value, n_bytes);
    return {};
  });
}

tsr_status tsr_model_list_devices(const tsr_model* model, tsr_device_use** devices, size_t struct_size, size_t* n) {
  return guarded([&]() -> Status {
    TRY(need_output(devices, "devices"));
    TRY(need_output(n, "n"));
    TRY(need(model, "model"));
    const std::vector<DeviceUse> uses = model->model->device_use();
    std::vector<tsr_device_use> rows;
    for (const DeviceUse& use : uses) {
      rows.push_back({0, use.name.c_str(), use.n_tiles, use.weight_bytes, use.kv_bytes, use.scratch_bytes,
                      use.budget_bytes, use.rec_bytes, use.spare_bytes});
    }
    return give_list(std::move(rows), {&tsr_device_use::name}, struct_size, "tsr_device_use", devices, n);
  });
}

tsr_status tsr_model_list_tiles(const tsr_model* model, tsr_tile** tiles, size_t struct_size, size_t* n) {
  return guarded([&]() -> Status {
    TRY(need_output(tiles, "tiles"));
    TRY(need_output(n, "n"));
    TRY(need(model, "model"));
    std::vector<tsr_tile> rows;
    for (const TileHome& home : model->model->tile_homes()) {
      rows.push_back(
          {0, home.kind.data(), home.layer, home.cut, home.device, home.offset, home.bytes, home.expert});  // literals
    }
    return give_list(std::move(rows), {&tsr_tile::kind}, struct_size, "tsr_tile", tiles, n);
  });
}

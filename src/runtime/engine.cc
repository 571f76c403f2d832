#include "runtime/engine.h"

#include <chrono>
#include <fmt/format.h>
#include <malloc.h>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "base/units.h"
#include "gguf/metadata_json.h"
#include "runtime/context_memory.h"
#include "runtime/memory_plan.h"
#include "runtime/model_file.h"
#include "runtime/model_state.h"
#include "runtime/outline.h"
#include "runtime/placement_switch.h"
#include "runtime/sampling_loader.h"
#include "runtime/vocab_loader.h"
#include "runtime/weight_loader.h"

namespace tessera {
namespace {

// Loads a model step by step into a ModelState.
class ModelLoader {
 public:
  ModelLoader(const ModelOptions& options, const Log& log, const LoadProgress& progress)
      : options_(options), log_(log), progress_(progress), model_(std::make_shared<ModelState>()) {}

  Result<std::shared_ptr<ModelState>> run() {
    const auto start = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(model_->file, open_model_file(options_, log_));
    model_->text_status = read_text();
    // What the vocabulary was built from, 40 MB for one of 262,144 tokens: let go of, and given back.
    model_->file->forget_arrays("tokenizer.");
    malloc_trim(0);
    if (options_.vocab_only || options_.needs_text) {
      TRY(model_->text_status);
    }
    if (!options_.vocab_only) {
      TRY(define_model(*model_, options_.path));
      TRY(place());
      TRY(reserve());
      TRY(load_weights(*model_, model_->devices.n_threads, progress_));
      ASSIGN_OR_RETURN(model_->loop, LoopThread::start());
      malloc_trim(0);  // what loading took
    }
    model_->summary.load_ms = ms_between(start, std::chrono::steady_clock::now());
    return std::move(model_);
  }

 private:
  Status read_text() {
    const Metadata& meta = model_->file->metadata();
    const Result<std::string_view> chat_template = meta.get_string("tokenizer.chat_template", "");
    if (chat_template.ok()) {
      model_->chat_template = *chat_template;
    } else {
      log_.warning(fmt::format("{}: {}; ChatML is used", options_.path, chat_template.status().message()));
    }
    model_->sampling = recommended_sampling(meta, [&](std::string_view warning) { log_.warning(warning); });
    Result<Vocab> vocab = load_vocab(meta);
    if (!vocab.ok()) {
      return vocab.status().with_context(options_.path);
    }
    auto tokenizer =
        Tokenizer::create(std::move(vocab).value(), [&](std::string_view warning) { log_.warning(warning); });
    if (!tokenizer.ok()) {
      return tokenizer.status().with_context(options_.path);
    }
    model_->tokenizer = std::move(tokenizer).value();
    return {};
  }

  Status place() {
    ModelState& m = *model_;
    ASSIGN_OR_RETURN(const SplitMode mode, parse_split_mode(options_.split_mode));
    TRY(open_model_devices(m, options_, false));
    warn_of_crowded_cpus();
    TRY(place_by_options(m, options_));
    report_shares(m, mode, Shares{options_.tensor_split}, log_);
    const bool has_experts = std::ranges::count(m.tiles.tiles, TileKind::kExpert, &Tile::kind) > 0;
    if (options_.n_cpu_moe > 0 && !has_experts) {
      log_.info("note: --n-cpu-moe has no effect: the model has no experts");
    }
    fill_summary();
    return {};
  }

  void warn_of_crowded_cpus() {
    const DeviceSet& set = model_->devices;
    if (set.n_threads <= set.n_runnable) {
      return;
    }
    const std::string cpus = set.cpus.empty() ? "" : ", CPUs " + cpu_list_text(set.cpus);
    log_.warning(fmt::format("--threads asks for {} threads, and {} can run at once{}; {}", set.n_threads,
                             set.n_runnable, cpus,
                             options_.cpu_strict ? "--cpu-strict cannot give each a CPU of its own"
                                                 : "those that share a CPU wait for each other"));
  }

  void fill_summary() {
    ModelSummary& s = model_->summary;
    const ModelInfo& info = model_->definition.info;
    s.architecture = info.architecture;
    s.name = info.name;
    s.n_layer = info.n_layer;
    s.n_embd = info.n_embd;
    s.n_head = info.n_head;
    s.n_kv_head = info.n_kv_head;
    s.n_vocab = info.n_vocab;
    s.n_ctx_train = info.n_ctx_train;
    s.file_bytes = model_->file->file_bytes();
    for (const TensorInfo& tensor : model_->file->tensors()) {
      s.n_params += tensor.n_elems;
    }
    s.split_mode = split_mode_name(model_->placement.made_by);
    s.n_cuts = model_->tiles.n_cuts;
    s.placement_version = model_->placement.version;
    s.n_threads = model_->devices.n_threads;
    for (int32_t l = 0; l < info.n_layer; ++l) {
      s.n_layers_attn_cut += model_->tiles.cuts(CutAxis::kAttention, l).n_nonempty() >= 2 ? 1 : 0;
      const bool ffn_cut = model_->tiles.cuts(CutAxis::kFeedForward, l).n_nonempty() >= 2 ||
                           model_->tiles.cuts(CutAxis::kExpert, l).n_nonempty() >= 2;
      s.n_layers_ffn_cut += ffn_cut ? 1 : 0;
    }
  }

  Status reserve() {
    ModelState& m = *model_;
    ASSIGN_OR_RETURN(const ContextOptions context, with_context_size(m, options_.context));
    if (const int64_t trained = m.definition.info.n_ctx_train; trained > 0 && context.n_ctx > trained) {
      log_.warning(
          fmt::format("--ctx-size {} is beyond the {} tokens that the model was trained on; text there may be poor",
                      context.n_ctx, trained));
    }
    ASSIGN_OR_RETURN(const ContextSizes sizes, context_sizes(m, context));
    ASSIGN_OR_RETURN(const std::vector<DeviceNeed> needs, memory_needs(m, context, sizes));
    TRY(check_fit(m, needs));
    for (size_t d = 0; d < m.weights.size(); ++d) {
      DeviceWeights& weights = m.weights[d];
      uint64_t all = weights.tiles_offset;
      for (const TileLayout& tile : weights.tile_layouts) {
        all += round_up(tile.bytes, m.devices[d].info().unit_bytes);
      }
      ASSIGN_OR_RETURN(weights.range, m.devices[d].reserve(std::max<uint64_t>(all, 1), "weights"));
      TRY(weights.range->resize(weights.bytes));
    }
    return {};
  }

  const ModelOptions& options_;
  const Log& log_;
  const LoadProgress& progress_;
  std::shared_ptr<ModelState> model_;
};

}  // namespace

LowerInput ModelState::lower_input(const Placement& where) const {
  LowerInput input;
  input.table = &definition.table;
  input.program = &definition.program;
  input.tiles = &tiles;
  input.placement = &where;
  input.replicas = &replicas;
  input.n_expert_slots = n_expert_slots;
  // Before weights have addresses lowering only counts; the stand-in is never read.
  std::byte* const unplaced = reinterpret_cast<std::byte*>(uintptr_t{1} << 20);
  for (const DeviceWeights& w : weights) {
    std::byte* base = w.range == nullptr ? unplaced : w.range->base();
    input.devices.push_back({base + w.tiles_offset, base, unplaced, w.kernels, &w.tile_layouts});
  }
  return input;
}

PlacementTarget ModelState::placement_target() const {
  PlacementTarget target;
  target.n_devices = n_devices();
  target.tile_bytes = [this](const Tile& tile, int device) {
    return weights[static_cast<size_t>(device)].tile_layouts[static_cast<size_t>(&tile - tiles.tiles.data())].bytes;
  };
  target.unit_bytes = [this](int device) { return devices[static_cast<size_t>(device)].info().unit_bytes; };
  target.fixed_home = fixed_home;
  target.streams_experts = n_expert_slots > 0;
  return target;
}

void ModelState::submit(DeviceLists& lists) const {
  for (size_t d = 0; d < lists.size(); ++d) {
    if (lists[d] != nullptr) {
      devices[d].compute_queue().submit(std::move(lists[d]), {});
    }
  }
}

Model::Model(std::shared_ptr<ModelState> state) : state_(std::move(state)) {}
Model::~Model() = default;

Result<std::shared_ptr<Model>> Model::load(const ModelOptions& options, const Log& log, const LoadProgress& progress) {
  try {
    ASSIGN_OR_RETURN(std::shared_ptr<ModelState> state, ModelLoader(options, log, progress).run());
    return std::shared_ptr<Model>(new Model(std::move(state)));
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::kOutOfMemory, fmt::format("{}: no memory is left to load it", options.path));
  }
}

const Status& Model::text_status() const {
  return state_->text_status;
}

const Tokenizer& Model::tokenizer() const {
  CHECK(state_->tokenizer != nullptr);
  return *state_->tokenizer;
}

std::shared_ptr<const TokenTrie> Model::token_trie() const {
  std::call_once(state_->token_trie_once, [&] { state_->token_trie = std::make_shared<const TokenTrie>(tokenizer()); });
  return state_->token_trie;
}

const std::string& Model::chat_template_source() const {
  return state_->chat_template;
}

const SamplerOptions& Model::recommended_sampling() const {
  return state_->sampling;
}

Result<ChatTemplate> Model::chat_template(const std::string& source) const {
  TRY(text_status());
  const Tokenizer& t = tokenizer();
  const auto text = [&](std::optional<int32_t> id) { return id ? std::string(t.text(*id)) : std::string(); };
  return ChatTemplate::parse(source.empty() ? state_->chat_template : source, text(t.bos()), text(t.eos()));
}

const ModelSummary& Model::summary() const {
  return state_->summary;
}

std::vector<DeviceUse> Model::device_use() const {
  std::vector<DeviceUse> uses;
  if (state_->loop == nullptr) {
    return uses;
  }
  // Refused only while the model goes away: then nothing is used.
  (void)state_->loop->run([&]() -> Status {
    uses = state_->device_use();
    return {};
  });
  return uses;
}

std::vector<DeviceUse> ModelState::device_use() const {
  std::vector<DeviceUse> uses;
  for (size_t d = 0; d < weights.size(); ++d) {
    DeviceUse use;
    use.name = devices[d].info().name;
    for (const int32_t home : placement.home) {
      use.n_tiles += home == static_cast<int32_t>(d) ? 1 : 0;
    }
    use.weight_bytes = weights[d].bytes;
    for (const ContextMemory* context : contexts) {
      use.kv_bytes += context->kv_bytes(d);
      use.rec_bytes += context->rec_bytes(d);
      use.scratch_bytes += context->scratch_bytes(d);
    }
    use.budget_bytes = devices[d].budget_bytes();
    use.spare_bytes = devices[d].spare_bytes();
    uses.push_back(std::move(use));
  }
  return uses;
}

std::vector<TileHome> Model::tile_homes() const {
  std::vector<TileHome> homes;
  if (state_->loop == nullptr) {
    return homes;
  }
  (void)state_->loop->run([&]() -> Status {
    const Placement& placement = state_->placement;
    for (size_t t = 0; t < state_->tiles.tiles.size(); ++t) {
      const Tile& tile = state_->tiles.tiles[t];
      const int32_t device = placement.home[t];
      homes.push_back({tile_kind_name(tile.kind), tile.layer, tile.cut, tile.expert, device, placement.offset[t],
                       state_->weights[static_cast<size_t>(device)].tile_layouts[t].bytes});
    }
    return {};
  });
  return homes;
}

Result<TransitionReport> Model::set_placement(const PlacementRequest& request, const TransitionOptions& options) {
  if (state_->loop == nullptr) {
    return Status(ErrorCode::kInvalidArgument, "the model was opened for its vocabulary only");
  }
  return switch_placement(*state_, request, options);
}

PlacementRequest Model::placement() const {
  PlacementRequest request;
  if (state_->loop != nullptr) {
    (void)state_->loop->run([&]() -> Status {
      request = state_->request;
      return {};
    });
  }
  return request;
}

uint64_t Model::placement_version() const {
  uint64_t version = 0;
  if (state_->loop != nullptr) {
    (void)state_->loop->run([&]() -> Status {
      version = state_->placement.version;
      return {};
    });
  }
  return version;
}

std::vector<std::string_view> Model::metadata_keys() const {
  std::vector<std::string_view> keys;
  for (const MetaValue& value : state_->file->metadata().entries()) {
    keys.push_back(value.key);
  }
  return keys;
}

Result<std::string> Model::metadata_text(std::string_view key) const {
  const MetaValue* value = state_->file->metadata().find(key);
  if (value == nullptr) {
    return Status(ErrorCode::kNotFound, fmt::format("the model file has no metadata key {}", key));
  }
  if (value->is_forgotten()) {
    ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, state_->file->read_value(*value));
    MetaValue whole = *value;
    whole.bytes = bytes;
    return metadata_json(whole);
  }
  if (value->is_array() || value->type != MetaType::kString) {
    return metadata_json(*value);
  }
  ASSIGN_OR_RETURN(const std::string_view text, state_->file->metadata().get_string(key));
  return std::string(text);
}

}  // namespace tessera

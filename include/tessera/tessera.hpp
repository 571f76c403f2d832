#ifndef TESSERA_TESSERA_HPP
#define TESSERA_TESSERA_HPP
// The C interface (tessera.h, which explains everything) as C++17: objects that free themselves, failures as
// tsr::Error.
//
// Header only: it stands on tessera.h alone, so it may be compiled with other options than the library. Objects can be
// moved, not copied; one that was moved from may only be destroyed or assigned to. Threads: as tessera.h says.

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera.h"

namespace tsr {

/// A call that failed: what() is the text of tsr_last_error().
class Error : public std::runtime_error {
 public:
  Error(tsr_status status, const char* text) : std::runtime_error(text), status_(status) {}
  tsr_status status() const { return status_; }

 private:
  tsr_status status_;
};

/// Throws an Error unless status is TSR_OK.
inline void check(tsr_status status) {
  if (status != TSR_OK) {
    throw Error(status, tsr_last_error());
  }
}

namespace detail {

template <auto free_function>
struct Deleter {
  template <typename T>
  void operator()(T* handle) const {
    free_function(handle);
  }
};
template <typename T, auto free_function>
using Handle = std::unique_ptr<T, Deleter<free_function>>;

template <typename T>
using Block = Handle<T, tsr_free>;

inline std::string take_text(char* text, size_t n_bytes) {
  const Block<char> block(text);
  return std::string(text, n_bytes);
}

inline std::vector<int32_t> take_ids(int32_t* ids, size_t n) {
  const Block<int32_t> block(ids);
  return std::vector<int32_t>(ids, ids + n);
}

}  // namespace detail

/// A list that the library handed out; texts in it live as long as the list.
template <typename T>
class List {
 public:
  List(T* block, size_t n) : block_(block), n_(n) {}
  const T* begin() const { return block_.get(); }
  const T* end() const { return block_.get() + n_; }
  size_t size() const { return n_; }
  const T& operator[](size_t i) const { return block_.get()[i]; }

 private:
  detail::Block<T> block_;
  size_t n_;
};

/// The devices of this machine.
inline List<tsr_device_info> devices() {
  tsr_device_info* list = nullptr;
  size_t n = 0;
  check(tsr_list_devices(&list, sizeof *list, &n));
  return {list, n};
}

/// A placement that is asked for: a split mode with shares, or homes with TSR_SPLIT_CUSTOM; and how to switch to it.
struct Placement {
  tsr_split_mode split_mode = TSR_SPLIT_LAYER;
  std::vector<double> tensor_split = {};
  std::vector<int32_t> homes = {};
  uint64_t version = 0;  // of what holds
  bool no_wait = false;
  double deadline_s = 0;
  uint64_t staging_bytes = 0;
  uint64_t ahead_bytes = 0;
  /// What it throws ends the switch, which is undone, and is then thrown by set_placement().
  std::function<bool(double fraction)> progress = {};
};

namespace detail {

struct SwitchProgress {
  const std::function<bool(double fraction)>& function;
  std::exception_ptr thrown = nullptr;

  static bool call(double fraction, void* user) {
    auto& self = *static_cast<SwitchProgress*>(user);
    try {
      return self.function(fraction);
    } catch (...) {
      self.thrown = std::current_exception();
      return false;
    }
  }
};

/// set: tsr_model_set_placement() or tsr_context_set_placement().
template <typename T>
void set_placement(tsr_status (*set)(T*, const tsr_placement*), T* handle, const Placement& placement) {
  SwitchProgress progress{placement.progress};
  tsr_switch_options options;
  check(tsr_switch_options_init(&options, sizeof options));
  options.no_wait = placement.no_wait;
  options.deadline_s = placement.deadline_s;
  options.staging_bytes = placement.staging_bytes;
  options.ahead_bytes = placement.ahead_bytes;
  options.progress = placement.progress ? SwitchProgress::call : nullptr;
  options.progress_user = &progress;
  tsr_placement given;
  check(tsr_placement_init(&given, sizeof given));
  given.split_mode = placement.split_mode;
  given.tensor_split = placement.tensor_split.data();
  given.n_tensor_split = placement.tensor_split.size();
  given.homes = placement.homes.data();
  given.n_homes = placement.homes.size();
  given.options = &options;
  const tsr_status status = set(handle, &given);
  if (progress.thrown) {
    std::rethrow_exception(progress.thrown);
  }
  check(status);
}

}  // namespace detail

/// The members of tsr_context_options, with their defaults.
struct ContextOptions : tsr_context_options {
  ContextOptions() { check(tsr_context_options_init(this, sizeof(tsr_context_options))); }
};

/// As tsr_model_options; empty texts and lists mean the default.
struct ModelOptions {
  std::vector<std::string> devices;
  std::vector<uint64_t> device_memory;
  std::string split_mode;
  std::vector<double> tensor_split;
  int32_t n_cuts = 0;
  int32_t n_threads = 0;
  std::string kernels;
  std::string cpu_isa;
  bool vocab_only = false;
  std::optional<ContextOptions> planned_context;
  /// What these throw ends loading (progress) or waits for its end (log), and is then thrown by Model's constructor.
  std::function<bool(double fraction)> progress;
  std::function<void(tsr_log_level level, std::string_view message)> log;
  tsr_log_level log_least = TSR_LOG_INFO;
  std::vector<std::string> override_tensor;
  int64_t n_cpu_moe = 0;
  int64_t expert_slots = 0;
  std::string cpu_mask;
  std::string cpu_range;
  std::string numa;
  bool cpu_strict = false;
};

class Model {
 public:
  explicit Model(const std::string& path, const ModelOptions& options = {}) {
    Callbacks callbacks{options, nullptr};
    const std::vector<const char*> names = as_c(options.devices);
    const std::vector<const char*> overrides = as_c(options.override_tensor);
    tsr_model_options given;
    check(tsr_model_options_init(&given, sizeof given));
    given.devices = names.data();
    given.n_devices = names.size();
    given.device_memory = options.device_memory.data();
    given.n_device_memory = options.device_memory.size();
    given.split_mode = text_or_null(options.split_mode);
    given.tensor_split = options.tensor_split.data();
    given.n_tensor_split = options.tensor_split.size();
    given.n_cuts = options.n_cuts;
    given.n_threads = options.n_threads;
    given.kernels = text_or_null(options.kernels);
    given.cpu_isa = text_or_null(options.cpu_isa);
    given.vocab_only = options.vocab_only;
    given.planned_context = options.planned_context ? &*options.planned_context : nullptr;
    given.progress = options.progress ? Callbacks::progress : nullptr;
    given.progress_user = &callbacks;
    given.log = options.log ? Callbacks::log : nullptr;
    given.log_user = &callbacks;
    given.log_least = options.log_least;
    given.override_tensor = overrides.data();
    given.n_override_tensor = overrides.size();
    given.n_cpu_moe = options.n_cpu_moe;
    given.expert_slots = options.expert_slots;
    given.cpu_mask = text_or_null(options.cpu_mask);
    given.cpu_range = text_or_null(options.cpu_range);
    given.numa = text_or_null(options.numa);
    given.cpu_strict = options.cpu_strict;
    tsr_model* model = nullptr;
    const tsr_status status = tsr_model_load(path.c_str(), &given, &model);
    handle_.reset(model);
    if (callbacks.thrown) {
      std::rethrow_exception(callbacks.thrown);
    }
    check(status);
  }

  tsr_model* get() const { return handle_.get(); }

  /// Texts in it live as long as this object.
  tsr_model_info info() const {
    tsr_model_info info;
    check(tsr_model_get_info(get(), &info, sizeof info));
    return info;
  }

  std::vector<std::string> metadata_keys() const {
    size_t n = 0;
    check(tsr_model_n_metadata(get(), &n));
    std::vector<std::string> keys;
    for (size_t i = 0; i < n; ++i) {
      const char* key = nullptr;
      check(tsr_model_metadata_key(get(), i, &key));
      keys.emplace_back(key);
    }
    return keys;
  }

  /// A text as it is, anything else as JSON; nothing when there is no such key.
  std::optional<std::string> metadata(const std::string& key) const {
    char* value = nullptr;
    size_t n_bytes = 0;
    const tsr_status status = tsr_model_metadata(get(), key.c_str(), &value, &n_bytes);
    if (status == TSR_NOT_FOUND) {
      return std::nullopt;
    }
    check(status);
    return detail::take_text(value, n_bytes);
  }

  List<tsr_device_use> devices() const {
    tsr_device_use* list = nullptr;
    size_t n = 0;
    check(tsr_model_list_devices(get(), &list, sizeof *list, &n));
    return {list, n};
  }

  List<tsr_tile> tiles() const {
    tsr_tile* list = nullptr;
    size_t n = 0;
    check(tsr_model_list_tiles(get(), &list, sizeof *list, &n));
    return {list, n};
  }

  /// What holds, as it was asked for.
  Placement placement() const {
    tsr_placement* block = nullptr;
    check(tsr_model_placement(get(), &block, sizeof *block));
    const detail::Block<tsr_placement> held(block);
    Placement placement;
    placement.split_mode = held->split_mode;
    placement.tensor_split.assign(held->tensor_split, held->tensor_split + held->n_tensor_split);
    placement.homes.assign(held->homes, held->homes + held->n_homes);
    placement.version = held->version;
    return placement;
  }
  /// Switches, with all contexts of the model.
  void set_placement(const Placement& placement) { detail::set_placement(tsr_model_set_placement, get(), placement); }
  tsr_split_mode split_mode() const {
    tsr_split_mode mode = TSR_SPLIT_NONE;
    check(tsr_model_get_split_mode(get(), &mode));
    return mode;
  }
  void set_split_mode(tsr_split_mode mode) { check(tsr_model_set_split_mode(get(), mode, nullptr)); }

  /// Pointers in it live as long as this object.
  tsr_vocab_info vocab() const {
    tsr_vocab_info info;
    check(tsr_vocab_get_info(get(), &info, sizeof info));
    return info;
  }

  std::vector<int32_t> tokenize(std::string_view text, uint32_t flags = TSR_TOKENIZE_ADD_SPECIAL) const {
    int32_t* ids = nullptr;
    size_t n = 0;
    check(tsr_tokenize(get(), text.data(), text.size(), flags, &ids, &n));
    return detail::take_ids(ids, n);
  }

  std::string detokenize(const std::vector<int32_t>& ids, uint32_t flags = 0) const {
    char* text = nullptr;
    size_t n_bytes = 0;
    check(tsr_detokenize(get(), ids.data(), ids.size(), flags, &text, &n_bytes));
    return detail::take_text(text, n_bytes);
  }

  /// Lives as long as the model.
  std::string_view piece(int32_t id) const {
    const char* bytes = nullptr;
    size_t n_bytes = 0;
    check(tsr_token_piece(get(), id, &bytes, &n_bytes));
    return {bytes, n_bytes};
  }

  tsr_token_info token(int32_t id) const {
    tsr_token_info info;
    check(tsr_token_get_info(get(), id, &info, sizeof info));
    return info;
  }

  std::optional<int32_t> find_token(std::string_view text) const {
    int32_t id = TSR_NO_TOKEN;
    const tsr_status status = tsr_token_find(get(), text.data(), text.size(), &id);
    if (status == TSR_NOT_FOUND) {
      return std::nullopt;
    }
    check(status);
    return id;
  }

 private:
  struct Callbacks {
    const ModelOptions& options;
    std::exception_ptr thrown;

    static bool progress(double fraction, void* user) {
      auto& self = *static_cast<Callbacks*>(user);
      try {
        return self.options.progress(fraction);
      } catch (...) {
        self.thrown = std::current_exception();
        return false;
      }
    }

    static void log(tsr_log_level level, const char* message, void* user) {
      auto& self = *static_cast<Callbacks*>(user);
      try {
        self.options.log(level, message);
      } catch (...) {
        self.thrown = std::current_exception();
      }
    }
  };

  static std::vector<const char*> as_c(const std::vector<std::string>& texts) {
    std::vector<const char*> given;
    for (const std::string& text : texts) {
      given.push_back(text.c_str());
    }
    return given;
  }

  static const char* text_or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

  detail::Handle<tsr_model, tsr_model_free> handle_;
};

/// Tokens to text as they arrive, in whole characters.
class Stream {
 public:
  explicit Stream(const Model& model, bool show_special = false) {
    tsr_stream* stream = nullptr;
    check(tsr_stream_create(model.get(), show_special, &stream));
    handle_.reset(stream);
  }

  tsr_stream* get() const { return handle_.get(); }

  /// Lives until the next call.
  std::string_view push(int32_t id) {
    const char* text = nullptr;
    size_t n_bytes = 0;
    check(tsr_stream_push(get(), id, &text, &n_bytes));
    return {text, n_bytes};
  }

  std::string_view flush() {
    const char* text = nullptr;
    size_t n_bytes = 0;
    check(tsr_stream_flush(get(), &text, &n_bytes));
    return {text, n_bytes};
  }

 private:
  detail::Handle<tsr_stream, tsr_stream_free> handle_;
};

struct Message {
  std::string role;
  std::string content;
};

class ChatTemplate {
 public:
  /// Empty source: the model's own, or ChatML.
  explicit ChatTemplate(const Model& model, const std::string& source = "") {
    tsr_chat_template* chat = nullptr;
    check(tsr_chat_template_create(model.get(), source.c_str(), &chat));
    handle_.reset(chat);
  }

  tsr_chat_template* get() const { return handle_.get(); }

  std::string render(const std::vector<Message>& messages) const {
    const std::vector<tsr_message> given = as_c(messages);
    char* text = nullptr;
    size_t n_bytes = 0;
    check(tsr_chat_template_render(get(), given.data(), given.size(), &text, &n_bytes));
    return detail::take_text(text, n_bytes);
  }

  std::vector<int32_t> encode(const std::vector<Message>& messages) const {
    const std::vector<tsr_message> given = as_c(messages);
    int32_t* ids = nullptr;
    size_t n = 0;
    check(tsr_chat_template_encode(get(), given.data(), given.size(), &ids, &n));
    return detail::take_ids(ids, n);
  }

  std::string render_json(std::string_view request) const {
    char* text = nullptr;
    size_t n_bytes = 0;
    check(tsr_chat_template_render_json(get(), request.data(), request.size(), &text, &n_bytes));
    return detail::take_text(text, n_bytes);
  }

  std::vector<int32_t> encode_json(std::string_view request) const {
    int32_t* ids = nullptr;
    size_t n = 0;
    check(tsr_chat_template_encode_json(get(), request.data(), request.size(), &ids, &n));
    return detail::take_ids(ids, n);
  }

 private:
  static std::vector<tsr_message> as_c(const std::vector<Message>& messages) {
    std::vector<tsr_message> given;
    for (const Message& message : messages) {
      given.push_back({message.role.c_str(), message.content.c_str()});
    }
    return given;
  }

  detail::Handle<tsr_chat_template, tsr_chat_template_free> handle_;
};

/// A token of a batch.
struct BatchToken {
  int32_t id = 0;
  int32_t seq = 0;
  bool wants_logits = false;
  bool wants_embedding = false;
};

/// A row of numbers that a decode left. Lives until the context's next decode.
class Row {
 public:
  Row(const float* data, size_t size) : data_(data), size_(size) {}
  const float* data() const { return data_; }
  size_t size() const { return size_; }
  const float* begin() const { return data_; }
  const float* end() const { return data_ + size_; }
  float operator[](size_t i) const { return data_[i]; }

 private:
  const float* data_;
  size_t size_;
};
using Logits = Row;     ///< [n_vocab] f32
using Embedding = Row;  ///< [n_embd] f32

/// Keeps its model alive by itself.
class Context {
 public:
  explicit Context(const Model& model, const ContextOptions& options = {}) {
    tsr_context* context = nullptr;
    check(tsr_context_create(model.get(), &options, &context));
    handle_.reset(context);
  }

  tsr_context* get() const { return handle_.get(); }

  tsr_context_info info() const {
    tsr_context_info info;
    check(tsr_context_get_info(get(), &info, sizeof info));
    return info;
  }

  /// One batch: each token to its sequence, logits and embeddings where wanted.
  void decode(const std::vector<BatchToken>& tokens) {
    std::vector<int32_t> ids;
    std::vector<int32_t> seqs;
    std::vector<uint8_t> wants_logits;
    std::vector<uint8_t> wants_embedding;
    for (const BatchToken& token : tokens) {
      ids.push_back(token.id);
      seqs.push_back(token.seq);
      wants_logits.push_back(token.wants_logits ? 1 : 0);
      wants_embedding.push_back(token.wants_embedding ? 1 : 0);
    }
    tsr_batch batch;
    check(tsr_batch_init(&batch, sizeof batch));
    batch.n_tokens = ids.size();
    batch.tokens = ids.data();
    batch.seqs = seqs.data();
    batch.wants_logits = wants_logits.data();
    batch.wants_embedding = wants_embedding.data();
    check(tsr_context_decode(get(), &batch));
  }

  /// Appends ids to a sequence, in as many batches as it takes; row 0 of the logits is the last one's.
  void append(const std::vector<int32_t>& ids, int32_t seq = 0) {
    const auto n_batch = static_cast<size_t>(info().n_batch);
    const std::vector<int32_t> seqs(std::min(n_batch, ids.size()), seq);
    for (size_t begin = 0; begin < ids.size(); begin += n_batch) {
      tsr_batch batch;
      check(tsr_batch_init(&batch, sizeof batch));
      batch.n_tokens = std::min(n_batch, ids.size() - begin);
      batch.tokens = ids.data() + begin;
      batch.seqs = seqs.data();
      check(tsr_context_decode(get(), &batch));
    }
  }

  /// Switches the placement of the context's model, with all its contexts. Any thread.
  void set_placement(const Placement& placement) { detail::set_placement(tsr_context_set_placement, get(), placement); }
  void set_split_mode(tsr_split_mode mode) { check(tsr_context_set_split_mode(get(), mode, nullptr)); }

  int64_t n_logits() const {
    int64_t n = 0;
    check(tsr_context_n_logits(get(), &n));
    return n;
  }

  Logits logits(int64_t row = 0) const {
    const float* data = nullptr;
    size_t n_vocab = 0;
    check(tsr_context_logits(get(), row, &data, &n_vocab));
    return {data, n_vocab};
  }

  int64_t n_embeddings() const {
    int64_t n = 0;
    check(tsr_context_n_embeddings(get(), &n));
    return n;
  }

  /// What the head reads of a token, neither pooled nor normalised.
  Embedding embedding(int64_t row = 0) const {
    const float* data = nullptr;
    size_t n_embd = 0;
    check(tsr_context_embedding(get(), row, &data, &n_embd));
    return {data, n_embd};
  }

  int64_t length(int32_t seq = 0) const {
    int64_t length = 0;
    check(tsr_context_length(get(), seq, &length));
    return length;
  }

  std::vector<int32_t> tokens(int32_t seq = 0) const {
    int32_t* ids = nullptr;
    size_t n = 0;
    check(tsr_context_tokens(get(), seq, &ids, &n));
    return detail::take_ids(ids, n);
  }

  /// The state of a sequence, or of the whole context.
  std::vector<char> state(int32_t seq = TSR_ALL_SEQUENCES) const {
    size_t n_bytes = 0;
    check(tsr_state_size(get(), seq, &n_bytes));
    std::vector<char> bytes(n_bytes);
    check(tsr_state_get(get(), seq, bytes.data(), bytes.size()));
    return bytes;
  }
  void set_state(const std::vector<char>& bytes, int32_t seq = TSR_ALL_SEQUENCES) {
    check(tsr_state_set(get(), seq, bytes.data(), bytes.size()));
  }
  void save_state(const std::string& path, int32_t seq = TSR_ALL_SEQUENCES) const {
    check(tsr_state_save(get(), seq, path.c_str()));
  }
  void load_state(const std::string& path, int32_t seq = TSR_ALL_SEQUENCES) {
    check(tsr_state_load(get(), seq, path.c_str()));
  }

  void truncate(int32_t seq, int64_t new_length) { check(tsr_context_truncate(get(), seq, new_length)); }
  /// Goes back to the largest length <= wanted that can be had, and returns it.
  int64_t rewind(int32_t seq, int64_t wanted) {
    int64_t length = 0;
    check(tsr_context_rewind(get(), seq, wanted, &length));
    return length;
  }
  void snapshot(int32_t seq = 0) { check(tsr_context_snapshot(get(), seq)); }
  bool keeps_snapshots() const {
    bool keeps = false;
    check(tsr_context_keeps_snapshots(get(), &keeps));
    return keeps;
  }
  void fork(int32_t from, int32_t to, int64_t length) { check(tsr_context_fork(get(), from, to, length)); }
  void clear() { check(tsr_context_clear(get())); }

 private:
  detail::Handle<tsr_context, tsr_context_free> handle_;
};

/// The members of tsr_sampler_options, with their defaults, or with what a model file recommends.
struct SamplerOptions : tsr_sampler_options {
  SamplerOptions() { check(tsr_sampler_options_init(this, sizeof(tsr_sampler_options))); }
  explicit SamplerOptions(const Model& model) {
    check(tsr_model_sampler_options_init(model.get(), this, sizeof(tsr_sampler_options)));
  }
};

class Sampler {
 public:
  explicit Sampler(const Model& model, const SamplerOptions& options = {}) {
    tsr_sampler* sampler = nullptr;
    check(tsr_sampler_create(model.get(), &options, &sampler));
    handle_.reset(sampler);
  }

  tsr_sampler* get() const { return handle_.get(); }

  int32_t sample(const Context& context, int64_t row = 0) {
    int32_t id = TSR_NO_TOKEN;
    check(tsr_sampler_sample_row(get(), context.get(), row, &id));
    return id;
  }

  int32_t sample(const float* logits, size_t n_vocab) {
    int32_t id = TSR_NO_TOKEN;
    check(tsr_sampler_sample(get(), logits, n_vocab, &id));
    return id;
  }

  void accept(const std::vector<int32_t>& ids) { check(tsr_sampler_accept(get(), ids.data(), ids.size())); }
  void reset() { check(tsr_sampler_reset(get())); }

  uint64_t seed() const {
    uint64_t seed = 0;
    check(tsr_sampler_seed(get(), &seed));
    return seed;
  }

 private:
  detail::Handle<tsr_sampler, tsr_sampler_free> handle_;
};

}  // namespace tsr

#endif

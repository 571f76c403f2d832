#include "models/model_reader.h"

#include <charconv>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "tensor/quants.h"

namespace tessera {
namespace {

// Tensors that generation never reads: the range of activations that a quantiser saw (used only by products that
// quantise activations with a fixed scale; ours find it block by block), and classifier heads.
bool is_advisory(std::string_view name) {
  return name.ends_with(".input_scale") || name.starts_with("cls.");
}

// The N of a name that begins with "blk.N.".
std::optional<int64_t> layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  int64_t layer = 0;
  if (!name.starts_with(kPrefix)) {
    return std::nullopt;
  }
  const char* const end = name.data() + name.size();
  const auto [next, error] = std::from_chars(name.data() + kPrefix.size(), end, layer);
  return error == std::errc() && next != end && *next == '.' ? std::optional(layer) : std::nullopt;
}

}  // namespace

ModelReader::ModelReader(const GgufFile& file) : file_(file), used_(file.tensors().size(), false) {
  arch_ = std::string(take(file.metadata().get_string("general.architecture"), std::string_view()));
  n_layer_ = integer("block_count");
  n_embd_ = integer("embedding_length");
  if (n_layer_ < 1 || n_layer_ > Metadata::kMaxLayers || n_embd_ < 1 || n_embd_ > (1 << 20)) {
    fail(ErrorCode::kInvalidData, fmt::format("{} layers of width {} is not a model this can be", n_layer_, n_embd_));
    n_layer_ = 0;
  }
  n_file_layers_ = n_layer_;
  table_.layers.resize(static_cast<size_t>(n_layer_));
}

void ModelReader::skip_last_layers(int64_t n) {
  if (n < 0 || (n >= n_layer_ && n > 0)) {
    fail(ErrorCode::kInvalidData, fmt::format("{} of {} layers are no part of the forward pass", n, n_layer_));
    return;
  }
  n_layer_ -= n;
  table_.layers.resize(static_cast<size_t>(n_layer_));
  for (size_t i = 0; i < used_.size(); ++i) {
    const std::optional<int64_t> layer = layer_of(file_.tensors()[i].name);
    used_[i] = used_[i] || (layer && *layer >= n_layer_ && *layer < n_file_layers_);
  }
}

template <typename T>
T ModelReader::take(Result<T> result, T fallback) {
  if (result.ok()) {
    return std::move(result).value();
  }
  if (error_.ok()) {
    error_ = result.status();
  }
  return fallback;
}

std::string ModelReader::full_key(std::string_view key) const {
  return fmt::format("{}.{}", arch_, key);
}

bool ModelReader::has(std::string_view key) const {
  return file_.metadata().has(full_key(key));
}

const MetaValue* ModelReader::find(std::string_view key) const {
  return file_.metadata().find(full_key(key));
}

int64_t ModelReader::integer(std::string_view key) {
  return static_cast<int64_t>(take(file_.metadata().get_u32(full_key(key)), uint32_t{0}));
}

int64_t ModelReader::integer(std::string_view key, int64_t fallback) {
  return has(key) ? integer(key) : fallback;
}

float ModelReader::number(std::string_view key) {
  const float value = take(file_.metadata().get_f32(full_key(key)), 0.0F);
  if (!std::isfinite(value) || value < 0) {
    fail(ErrorCode::kInvalidData, fmt::format("{} is {}; it must be a number of 0 or more", full_key(key), value));
    return 0;
  }
  return value;
}

float ModelReader::number(std::string_view key, float fallback) {
  return has(key) ? number(key) : fallback;
}

std::vector<int64_t> ModelReader::per_layer(std::string_view key) {
  const auto n = static_cast<uint32_t>(n_file_layers_);
  const std::vector<uint32_t> values =
      take(file_.metadata().get_u32_per_layer(full_key(key), n), std::vector<uint32_t>(n, 0));
  return {values.begin(), values.begin() + n_layer_};
}

std::vector<int64_t> ModelReader::per_layer(std::string_view key, int64_t fallback) {
  return has(key) ? per_layer(key) : std::vector<int64_t>(static_cast<size_t>(n_layer_), fallback);
}

std::vector<uint8_t> ModelReader::flags_per_layer(std::string_view key) {
  const auto n = static_cast<uint32_t>(n_file_layers_);
  std::vector<uint8_t> flags = take(file_.metadata().get_bool_per_layer(full_key(key), n), std::vector<uint8_t>(n, 0));
  flags.resize(static_cast<size_t>(n_layer_));
  return flags;
}

void ModelReader::fail(ErrorCode code, std::string message) {
  if (error_.ok()) {
    error_ = Status(code, std::move(message));
  }
}

int32_t ModelReader::source(const std::string& name, bool required) {
  const TensorInfo* info = file_.find(name);
  if (info == nullptr) {
    if (required) {
      fail(ErrorCode::kInvalidData, fmt::format("tensor {} is missing", name));
    }
    return -1;
  }
  const auto index = static_cast<size_t>(info - file_.tensors().data());
  used_[index] = true;
  return static_cast<int32_t>(index);
}

TensorIndex ModelReader::add(TensorSpec spec) {
  table_.tensors.push_back(std::move(spec));
  return static_cast<TensorIndex>(table_.tensors.size() - 1);
}

TensorIndex ModelReader::embedding() {
  const int32_t index = source("token_embd.weight", true);
  if (index < 0) {
    return kNoTensor;
  }
  const TensorInfo& info = file_.tensors()[static_cast<size_t>(index)];
  if (info.n_dims != 2 || info.dims[0] != static_cast<uint64_t>(n_embd_) || info.dims[1] == 0 ||
      info.dims[1] > (1U << 24)) {
    fail(ErrorCode::kInvalidData,
         fmt::format("tensor {} is {} x {}, wanted {} columns", info.name, info.dims[0], info.dims[1], n_embd_));
    return kNoTensor;
  }
  table_.n_vocab = static_cast<int64_t>(info.dims[1]);
  TensorSpec spec;
  spec.name = info.name;
  spec.dtype = info.dtype;
  spec.rows = table_.n_vocab;
  spec.columns = n_embd_;
  spec.tile = TileKind::kHost;
  spec.source = index;
  return add(std::move(spec));
}

Weight ModelReader::head() {
  const bool tied = file_.find("output.weight") == nullptr;
  return weight(tied ? "token_embd" : "output", table_.n_vocab, n_embd_,
                {TileKind::kHead, -1, CutRule::rows(CutAxis::kHead, 1)});
}

TensorIndex ModelReader::add_vector(const std::string& name, int64_t n, bool required) {
  const int32_t index = source(name, required);
  if (index < 0) {
    return kNoTensor;
  }
  const TensorInfo& info = file_.tensors()[static_cast<size_t>(index)];
  if (info.n_elems != static_cast<uint64_t>(n) || info.dims[0] != static_cast<uint64_t>(n)) {
    fail(ErrorCode::kInvalidData,
         fmt::format("tensor {} has {} elements in rows of {}, wanted {}", name, info.n_elems, info.dims[0], n));
    return kNoTensor;
  }
  TensorSpec spec;
  spec.name = name;
  spec.dtype = info.dtype;
  spec.columns = n;
  spec.source = index;
  return add(std::move(spec));
}

TensorIndex ModelReader::vector(const std::string& name, int64_t n) {
  return add_vector(name, n, true);
}

TensorIndex ModelReader::optional_vector(const std::string& name, int64_t n) {
  return add_vector(name, n, false);
}

std::vector<float> ModelReader::values(int32_t source) {
  const TensorInfo& info = file_.tensors()[static_cast<size_t>(source)];
  std::vector<float> result(info.n_elems);
  std::vector<std::byte> bytes(info.n_bytes);
  const Status status = file_.read(info, 0, bytes);
  if (!status.ok()) {
    fail(status.code(), status.message());
    return result;
  }
  dequantize_row(info.dtype, bytes.data(), result.data(), static_cast<int64_t>(info.n_elems));
  return result;
}

TensorIndex ModelReader::scaled_bias(const Weight& w) {
  const TensorSpec& bias = table_.tensors[static_cast<size_t>(w.bias)];
  const float scale = values(table_.tensors[static_cast<size_t>(w.scale)].source)[0];
  std::vector<float> scaled = values(bias.source);
  for (float& x : scaled) {
    x *= scale;
  }
  return constant(bias.name + ".scaled", std::move(scaled));
}

int32_t ModelReader::matrix_source(const std::string& name, int64_t rows, int64_t columns) {
  const int32_t index = source(name, true);
  if (index < 0) {
    return -1;
  }
  const TensorInfo& info = file_.tensors()[static_cast<size_t>(index)];
  if (info.n_elems != info.dims[0] * info.dims[1] || info.dims[0] != static_cast<uint64_t>(columns) ||
      info.dims[1] != static_cast<uint64_t>(rows)) {
    fail(ErrorCode::kInvalidData,
         fmt::format("tensor {} is [{}, {}], wanted [{}, {}]", name, info.dims[0], info.dims[1], columns, rows));
    return -1;
  }
  return index;
}

TensorIndex ModelReader::add_matrix(const std::string& name, int64_t rows, int64_t columns, const TileSlot& slot) {
  const int32_t index = matrix_source(name, rows, columns);
  if (index < 0) {
    return kNoTensor;
  }
  TensorSpec spec;
  spec.name = name;
  spec.dtype = file_.tensors()[static_cast<size_t>(index)].dtype;
  spec.rows = rows;
  spec.columns = columns;
  spec.tile = slot.tile;
  spec.layer = slot.layer;
  spec.cut = slot.cut;
  spec.source = index;
  return add(std::move(spec));
}

TensorIndex ModelReader::matrix(const std::string& name, int64_t rows, int64_t columns) {
  return add_matrix(name, rows, columns, {});
}

Weight ModelReader::weight(const std::string& stem, int64_t rows, int64_t columns, const TileSlot& slot,
                           ScaleRule rule) {
  Weight result;
  result.weight = add_matrix(stem + ".weight", rows, columns, slot);
  if (result.weight == kNoTensor) {
    return {};
  }
  result.scale = optional_vector(stem + ".scale", 1);
  result.bias = optional_vector(stem + ".bias", rows);
  if (rule == ScaleRule::kUnused) {
    result.scale = kNoTensor;
  } else if (rule == ScaleRule::kAfterBias && result.scale != kNoTensor && result.bias != kNoTensor) {
    result.bias = scaled_bias(result);
  }
  return result;
}

TensorIndex ModelReader::transposed(const std::string& name, int64_t rows, int64_t columns) {
  const int32_t index = matrix_source(name, rows, columns);
  if (index < 0) {
    return kNoTensor;
  }
  const std::vector<float> given = values(index);
  std::vector<float> turned(given.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      turned[static_cast<size_t>(c * rows + r)] = given[static_cast<size_t>(r * columns + c)];
    }
  }
  return constant(name, std::move(turned));
}

TensorIndex ModelReader::constant(std::string name, std::vector<float> values) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.columns = static_cast<int64_t>(values.size());
  spec.constant = std::move(values);
  return add(std::move(spec));
}

RopeParams ModelReader::rope_params(int64_t head_dim) {
  RopeParams params;
  params.n_rot = integer("rope.dimension_count", head_dim);
  params.freq_base = number("rope.freq_base", params.freq_base);
  const std::string_view type =
      take(file_.metadata().get_string(full_key("rope.scaling.type"), ""), std::string_view());
  params.factor = number("rope.scaling.factor", number("rope.scale_linear", 0));
  if (type == "yarn") {
    params.scaling = RopeScaling::kYarn;
  } else if (type == "linear" || (type.empty() && params.factor > 0)) {
    params.scaling = RopeScaling::kLinear;
  } else if (!type.empty() && type != "none") {
    fail(ErrorCode::kUnsupported, fmt::format("rope scaling '{}' is not supported", type));
  }
  params.original_context = integer("rope.scaling.original_context_length", integer("context_length", 0));
  params.attn_factor = number("rope.scaling.attn_factor", 1);
  const int32_t factors = source("rope_freqs.weight", false);
  if (factors >= 0) {
    params.freq_factors = values(factors);
  }
  const Status sound = check_rope(params);
  if (!sound.ok()) {
    fail(sound.code(), sound.message());
    params = RopeParams{};
    params.n_rot = 2;
    return params;
  }
  if (params.n_rot > head_dim) {
    fail(ErrorCode::kInvalidData,
         fmt::format("{} is {}, more than a head's {}", full_key("rope.dimension_count"), params.n_rot, head_dim));
    params = RopeParams{};
    params.n_rot = 2;
  }
  return params;
}

Status ModelReader::finish() const {
  TRY(error_);
  for (size_t i = 0; i < used_.size(); ++i) {
    const TensorInfo& info = file_.tensors()[i];
    if (!used_[i] && !is_advisory(info.name)) {
      return {ErrorCode::kUnsupported,
              fmt::format("tensor {} is not one that architecture '{}' knows here; running without it would be wrong",
                          info.name, arch_)};
    }
  }
  return {};
}

ModelInfo ModelReader::info() const {
  const Metadata& meta = file_.metadata();
  ModelInfo info;
  info.architecture = arch_;
  const auto name = meta.get_string("general.name", "");
  info.name = name.ok() ? std::string(*name) : "";
  info.n_layer = n_layer_;
  info.n_embd = n_embd_;
  info.n_vocab = table_.n_vocab;
  const auto n_ctx = meta.get_u32(full_key("context_length"), 0);
  info.n_ctx_train = n_ctx.ok() ? *n_ctx : 0;
  info.n_kv_head = table_.layers.empty() ? 0 : table_.layers[0].n_kv_heads;
  return info;
}

}  // namespace tessera

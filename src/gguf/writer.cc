#include "gguf/writer.h"

#include <algorithm>
#include <bit>
#include <fmt/core.h>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "base/files.h"
#include "gguf/parse.h"

namespace tessera {
namespace {

template <typename T>
void append_number(std::string& out, T value) {
  static_assert(std::is_trivially_copyable_v<T> && std::endian::native == std::endian::little);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_string(std::string& out, std::string_view text) {
  append_number(out, uint64_t{text.size()});
  out.append(text);
}

std::string type_code(MetaType type) {
  std::string out;
  append_number(out, static_cast<int32_t>(type));
  return out;
}

template <typename T>
std::string encode_scalar(MetaType type, T value) {
  std::string out = type_code(type);
  append_number(out, value);
  return out;
}

std::string array_head(MetaType elem_type, size_t count) {
  std::string out = type_code(MetaType::kArray) + type_code(elem_type);
  append_number(out, uint64_t{count});
  return out;
}

template <typename T>
std::string encode_array(MetaType elem_type, std::span<const T> values) {
  std::string out = array_head(elem_type, values.size());
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return out;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

GgufWriter::GgufWriter(uint32_t alignment) : alignment_(alignment) {
  CHECK(std::has_single_bit(alignment));
  if (alignment != 32) {
    set_u32("general.alignment", alignment);
  }
}

void GgufWriter::set(std::string_view key, std::string encoded) {
  const auto at = std::ranges::find(entries_, key, &Entry::key);
  if (at != entries_.end()) {
    at->encoded = std::move(encoded);
  } else {
    entries_.push_back({std::string(key), std::move(encoded)});
  }
}

void GgufWriter::set_u32(std::string_view key, uint32_t value) {
  set(key, encode_scalar(MetaType::kU32, value));
}
void GgufWriter::set_i32(std::string_view key, int32_t value) {
  set(key, encode_scalar(MetaType::kI32, value));
}
void GgufWriter::set_u64(std::string_view key, uint64_t value) {
  set(key, encode_scalar(MetaType::kU64, value));
}
void GgufWriter::set_f32(std::string_view key, float value) {
  set(key, encode_scalar(MetaType::kF32, value));
}
void GgufWriter::set_bool(std::string_view key, bool value) {
  set(key, encode_scalar(MetaType::kBool, static_cast<uint8_t>(value)));
}
void GgufWriter::set_string(std::string_view key, std::string_view value) {
  std::string encoded = type_code(MetaType::kString);
  append_string(encoded, value);
  set(key, std::move(encoded));
}
void GgufWriter::set_u32_array(std::string_view key, std::span<const uint32_t> values) {
  set(key, encode_array(MetaType::kU32, values));
}
void GgufWriter::set_i32_array(std::string_view key, std::span<const int32_t> values) {
  set(key, encode_array(MetaType::kI32, values));
}
void GgufWriter::set_f32_array(std::string_view key, std::span<const float> values) {
  set(key, encode_array(MetaType::kF32, values));
}
void GgufWriter::set_bool_array(std::string_view key, std::span<const uint8_t> values) {
  set(key, encode_array(MetaType::kBool, values));
}
void GgufWriter::set_string_array(std::string_view key, std::span<const std::string> values) {
  std::string encoded = array_head(MetaType::kString, values.size());
  for (const std::string& value : values) {
    append_string(encoded, value);
  }
  set(key, std::move(encoded));
}

void GgufWriter::set_raw(const MetaValue& value) {
  std::string encoded = value.is_array() ? array_head(value.elem_type, value.count) : type_code(value.type);
  encoded.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
  set(value.key, std::move(encoded));
}

void GgufWriter::copy_metadata(const Metadata& metadata) {
  for (const MetaValue& value : metadata.entries()) {
    if (value.key != "general.alignment" && !value.key.starts_with("split.")) {
      CHECK(!value.is_forgotten());
      set_raw(value);
    }
  }
}

Status GgufWriter::add_tensor(std::string_view name, DType dtype, std::span<const uint64_t> dims,
                              std::span<const std::byte> bytes) {
  const auto refuse = [&](std::string_view why) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("cannot write the tensor {}: {}", quoted(name), why));
  };
  if (name.size() >= 64) {
    return refuse("its name has more than 63 bytes");
  }
  if (std::ranges::find(tensors_, name, &Tensor::name) != tensors_.end()) {
    return refuse("there is one of this name");
  }
  const DTypeInfo& layout = dtype_info(dtype);
  if (dims.size() > 4 || (dims.empty() ? 1 : dims[0]) % layout.block_elems != 0) {
    return refuse("it has more than 4 dimensions, or its rows are not whole blocks");
  }
  auto wanted = std::optional<uint64_t>(layout.block_bytes);
  for (size_t d = 0; d < dims.size() && wanted; ++d) {
    wanted = checked_mul(*wanted, d == 0 ? dims[d] / layout.block_elems : dims[d]);
  }
  if (wanted != bytes.size()) {
    return refuse(fmt::format("{} bytes were given, which is not what its type and dimensions ask for", bytes.size()));
  }
  tensors_.push_back({std::string(name), dtype, {dims.begin(), dims.end()}, bytes});
  return {};
}

Status GgufWriter::add_tensor(std::string_view name, DType dtype, std::span<const uint64_t> dims,
                              std::vector<std::byte>&& bytes) {
  TRY(add_tensor(name, dtype, dims, std::span<const std::byte>(bytes)));
  owned_.push_back(std::move(bytes));  // moving a vector keeps its bytes where they are
  return {};
}

std::string GgufWriter::encode_head(std::span<const Entry> entries, std::span<const Tensor> tensors) const {
  std::string head = "GGUF";
  append_number(head, uint32_t{3});
  append_number(head, uint64_t{tensors.size()});
  append_number(head, uint64_t{entries.size()});
  for (const Entry& entry : entries) {
    append_string(head, entry.key);
    head += entry.encoded;
  }
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    append_string(head, tensor.name);
    append_number(head, static_cast<uint32_t>(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) {
      append_number(head, dim);
    }
    append_number(head, static_cast<int32_t>(tensor.dtype));
    append_number(head, offset);
    offset += round_up(tensor.bytes.size(), alignment_);
  }
  head.resize(round_up(head.size(), alignment_));
  return head;
}

template <typename Append>
Status GgufWriter::emit(std::span<const Entry> entries, std::span<const Tensor> tensors, Append append) const {
  TRY(append(bytes_of(encode_head(entries, tensors))));
  const std::vector<std::byte> zeros(alignment_);
  for (const Tensor& tensor : tensors) {
    TRY(append(tensor.bytes));
    const uint64_t padding = round_up(tensor.bytes.size(), alignment_) - tensor.bytes.size();
    TRY(append(std::span(zeros).first(padding)));
  }
  return {};
}

std::vector<std::byte> GgufWriter::to_bytes() const {
  std::vector<std::byte> out;
  const Status status = emit(entries_, tensors_, [&](std::span<const std::byte> bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
    return Status();
  });
  CHECK(status.ok());
  return out;
}

Status GgufWriter::write(const std::string& path) const {
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::create(path));
  TRY(emit(entries_, tensors_, [&](std::span<const std::byte> bytes) { return file.append(bytes); }));
  return file.commit();
}

Result<std::vector<std::string>> GgufWriter::write_split(std::string_view prefix, size_t max_tensors) const {
  CHECK(max_tensors > 0);
  const size_t n_files = std::max<size_t>(div_up(tensors_.size(), max_tensors), 1);
  std::vector<std::string> paths;
  for (size_t i = 0; i < n_files; ++i) {
    std::vector<Entry> entries = i == 0 ? entries_ : std::vector<Entry>();
    if (i > 0 && alignment_ != 32) {
      entries.push_back({"general.alignment", encode_scalar(MetaType::kU32, alignment_)});
    }
    entries.push_back({"split.no", encode_scalar(MetaType::kU16, static_cast<uint16_t>(i))});
    entries.push_back({"split.count", encode_scalar(MetaType::kU16, static_cast<uint16_t>(n_files))});
    entries.push_back({"split.tensors.count", encode_scalar(MetaType::kI32, static_cast<int32_t>(tensors_.size()))});
    const size_t begin = std::min(i * max_tensors, tensors_.size());
    const auto tensors = std::span(tensors_).subspan(begin, std::min(max_tensors, tensors_.size() - begin));
    paths.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", prefix, i + 1, n_files));
    ASSIGN_OR_RETURN(FileWriter file, FileWriter::create(paths.back()));
    TRY(emit(entries, tensors, [&](std::span<const std::byte> bytes) { return file.append(bytes); }));
    TRY(file.commit());
  }
  return paths;
}

}  // namespace tessera

#include "gguf/parse.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/core.h>
#include <optional>
#include <type_traits>

#include "base/check.h"
#include "base/checked.h"
#include "gguf/name_index.h"

namespace tessera {
namespace {

constexpr uint64_t kMaxKeyBytes = 65535;          // the specification's limit
constexpr uint64_t kMaxStringBytes = 1ULL << 30;  // more than any value a model needs
constexpr uint64_t kMaxArrayElems = 1ULL << 30;
constexpr uint64_t kMaxNameBytes = 63;
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;  // key length, key, type, one-byte value
constexpr uint64_t kMinInfoBytes = 8 + 4 + 4 + 8;   // name length, n_dims, type, offset
constexpr uint64_t kMaxElems = INT64_MAX;

Status damaged(std::string message) {
  return {ErrorCode::kInvalidData, std::move(message)};
}

// Bytes of one element of a fixed-size type; 0 for strings, arrays and unknown types.
uint64_t fixed_bytes(MetaType type) {
  switch (type) {
    case MetaType::kU8:
    case MetaType::kI8:
    case MetaType::kBool: return 1;
    case MetaType::kU16:
    case MetaType::kI16: return 2;
    case MetaType::kU32:
    case MetaType::kI32:
    case MetaType::kF32: return 4;
    case MetaType::kU64:
    case MetaType::kI64:
    case MetaType::kF64: return 8;
    case MetaType::kString:
    case MetaType::kArray: return 0;
  }
  return 0;
}

// Walks the bytes front to back; every step says whether the bytes were there.
class Cursor {
 public:
  Cursor(std::span<const std::byte> head, uint64_t file_bytes) : head_(head), file_bytes_(file_bytes) {}

  [[nodiscard]] uint64_t offset() const { return offset_; }
  /// Bytes that the file still has, in the head or beyond it.
  [[nodiscard]] uint64_t remaining() const { return file_bytes_ - offset_; }
  /// Whether a step failed although the file has the bytes: the head is too short.
  [[nodiscard]] bool starved() const { return starved_; }

  template <typename T>
  std::optional<T> read() {
    static_assert(std::is_trivially_copyable_v<T> && std::endian::native == std::endian::little);
    const auto raw = take(sizeof(T));
    if (!raw) {
      return std::nullopt;
    }
    T value;
    std::memcpy(&value, raw->data(), sizeof(T));
    return value;
  }

  std::optional<std::span<const std::byte>> take(uint64_t n) {
    if (n > head_.size() - offset_) {
      starved_ = starved_ || n <= remaining();
      return std::nullopt;
    }
    const auto taken = head_.subspan(offset_, n);
    offset_ += n;
    return taken;
  }

 private:
  std::span<const std::byte> head_;
  uint64_t file_bytes_;
  uint64_t offset_ = 0;
  bool starved_ = false;
};

class Parser {
 public:
  Parser(std::span<const std::byte> head, uint64_t file_bytes)
      : head_(head), file_bytes_(file_bytes), in_(head, file_bytes) {}

  Result<std::optional<ParsedGguf>> run() {
    const Status status = read();
    if (in_.starved()) {
      return std::optional<ParsedGguf>();  // whatever it complained about came of that
    }
    TRY(status);
    return std::optional(std::move(out_));
  }

 private:
  Status read() {
    TRY(read_header());
    TRY(read_entries());
    TRY(read_alignment());
    TRY(read_infos());
    return place_tensors();
  }

  Status read_header();
  Status read_entries();
  Status read_entry(uint64_t index);
  Status read_value(MetaValue& entry);
  Status read_array(MetaValue& entry);
  Status read_alignment();
  Status read_infos();
  Status read_info(uint64_t index);
  Status read_shape(TensorInfo& info);
  Status place_tensors();

  [[nodiscard]] Status cut_off(const std::string& where) const {
    return damaged(fmt::format("the file ends after {} bytes, inside {}: an incomplete download?", file_bytes_, where));
  }

  // A string with its length; `what` names it in messages.
  Result<std::string_view> read_string(uint64_t max_bytes, const std::string& what) {
    const auto length = in_.read<uint64_t>();
    if (!length) {
      return cut_off(what);
    }
    if (*length > max_bytes) {
      return damaged(fmt::format("{} claims {} bytes, at most {} are allowed", what, *length, max_bytes));
    }
    const auto text = in_.take(*length);
    if (!text) {
      return damaged(fmt::format("{} claims {} bytes, but the file has only {} left", what, *length, in_.remaining()));
    }
    return std::string_view(reinterpret_cast<const char*>(text->data()), text->size());
  }

  std::span<const std::byte> head_;
  uint64_t file_bytes_;
  Cursor in_;
  ParsedGguf out_;
  uint64_t n_tensors_ = 0;
  uint64_t n_entries_ = 0;
  uint64_t alignment_ = 32;
  std::vector<uint64_t> offsets_;  // of each tensor, relative to the data section
};

Status Parser::read_header() {
  const auto magic = in_.take(4);
  if (!magic || std::memcmp(magic->data(), "GGUF", 4) != 0) {
    return damaged(describe_foreign(head_));
  }
  const auto version = in_.read<uint32_t>();
  if (!version) {
    return cut_off("its header");
  }
  if (*version == 0) {
    return damaged("its GGUF version is 0; versions 2 and 3 are supported");
  }
  if ((*version & 0xFFFFU) == 0) {
    return {ErrorCode::kUnsupported, "it was written for big-endian machines; only little-endian GGUF is supported"};
  }
  if (*version == 1 || *version > 3) {
    return {ErrorCode::kUnsupported, fmt::format("its GGUF version is {}; versions 2 and 3 are supported", *version)};
  }
  out_.version = *version;
  const auto n_tensors = in_.read<uint64_t>();
  const auto n_entries = in_.read<uint64_t>();
  if (!n_tensors || !n_entries) {
    return cut_off("its header");
  }
  n_tensors_ = *n_tensors;
  n_entries_ = *n_entries;
  const auto check_count = [&](uint64_t count, uint64_t limit, uint64_t least_bytes, std::string_view what) -> Status {
    if (count > limit) {
      return damaged(fmt::format("its header claims {} {}; more than {} are taken for damage", count, what, limit));
    }
    if (count * least_bytes > in_.remaining()) {
      return damaged(
          fmt::format("its header claims {} {}, which do not fit into the {} bytes that follow: a damaged or "
                      "incomplete file",
                      count, what, in_.remaining()));
    }
    return {};
  };
  TRY(check_count(n_tensors_, kMaxTensors, kMinInfoBytes, "tensors"));
  return check_count(n_entries_, kMaxMetaEntries, kMinEntryBytes, "metadata keys");
}

Status Parser::read_entries() {
  out_.entries.reserve(n_entries_);
  for (uint64_t i = 0; i < n_entries_; ++i) {
    TRY(read_entry(i));
  }
  const auto key_of = [&](uint32_t i) { return out_.entries[i].key; };
  const auto order = index_by_name(out_.entries.size(), key_of);
  if (const auto twice = find_duplicate(order, key_of)) {
    return damaged(fmt::format("the key {} occurs twice", quoted(key_of(*twice))));
  }
  return {};
}

Status Parser::read_entry(uint64_t index) {
  MetaValue entry;
  ASSIGN_OR_RETURN(entry.key,
                   read_string(kMaxKeyBytes, fmt::format("the name of key {} of {}", index + 1, n_entries_)));
  if (entry.key.empty()) {
    return damaged(fmt::format("key {} of {} has an empty name", index + 1, n_entries_));
  }
  const auto type = in_.read<int32_t>();
  if (!type) {
    return cut_off(fmt::format("the key {}", quoted(entry.key)));
  }
  entry.type = entry.elem_type = static_cast<MetaType>(*type);
  TRY(read_value(entry));
  entry.file_offset = static_cast<uint64_t>(entry.bytes.data() - head_.data());
  entry.n_bytes = entry.bytes.size();
  out_.entries.push_back(entry);
  return {};
}

Status Parser::read_value(MetaValue& entry) {
  if (entry.type == MetaType::kArray) {
    return read_array(entry);
  }
  const uint64_t begin = in_.offset();
  if (entry.type == MetaType::kString) {
    ASSIGN_OR_RETURN(const auto text,
                     read_string(kMaxStringBytes, fmt::format("the string of key {}", quoted(entry.key))));
    entry.bytes = head_.subspan(begin, sizeof(uint64_t) + text.size());
    return {};
  }
  const uint64_t size = fixed_bytes(entry.type);
  if (size == 0) {
    return damaged(
        fmt::format("the key {} has the unknown value type {}", quoted(entry.key), static_cast<int32_t>(entry.type)));
  }
  const auto raw = in_.take(size);
  if (!raw) {
    return cut_off(fmt::format("the value of key {}", quoted(entry.key)));
  }
  if (entry.type == MetaType::kBool && std::to_integer<int>(raw->front()) > 1) {
    return damaged(fmt::format("the key {} is a bool of value {}; only 0 and 1 exist", quoted(entry.key),
                               std::to_integer<int>(raw->front())));
  }
  entry.bytes = *raw;
  return {};
}

Status Parser::read_array(MetaValue& entry) {
  const auto type = in_.read<int32_t>();
  const auto count = in_.read<uint64_t>();
  if (!type || !count) {
    return cut_off(fmt::format("the array of key {}", quoted(entry.key)));
  }
  entry.elem_type = static_cast<MetaType>(*type);
  entry.count = *count;
  if (entry.elem_type == MetaType::kArray) {
    return damaged(fmt::format("the key {} is an array of arrays, which GGUF readers do not take", quoted(entry.key)));
  }
  const uint64_t size = fixed_bytes(entry.elem_type);
  if (size == 0 && entry.elem_type != MetaType::kString) {
    return damaged(fmt::format("the key {} is an array of the unknown type {}", quoted(entry.key), *type));
  }
  if (entry.count > kMaxArrayElems) {
    return damaged(fmt::format("the array of key {} claims {} elements, at most {} are allowed", quoted(entry.key),
                               entry.count, kMaxArrayElems));
  }
  const uint64_t least_bytes = entry.count * (size != 0 ? size : sizeof(uint64_t));
  if (least_bytes > in_.remaining()) {
    return damaged(fmt::format("the array of key {} claims {} elements, but the file has only {} bytes left",
                               quoted(entry.key), entry.count, in_.remaining()));
  }
  const uint64_t begin = in_.offset();
  if (size != 0) {
    const auto raw = in_.take(least_bytes);
    if (!raw) {
      return cut_off(fmt::format("the array of key {}", quoted(entry.key)));
    }
    entry.bytes = *raw;
    const auto bad = [](std::byte b) { return std::to_integer<int>(b) > 1; };
    if (entry.elem_type == MetaType::kBool && std::ranges::any_of(entry.bytes, bad)) {
      return damaged(fmt::format("the key {} is an array of bools with a value other than 0 and 1", quoted(entry.key)));
    }
    return {};
  }
  for (uint64_t i = 0; i < entry.count; ++i) {
    // The message is made only when it is needed: vocabularies have hundreds of thousands of strings.
    const auto length = in_.read<uint64_t>();
    if (!length || *length > kMaxStringBytes || !in_.take(*length)) {
      return damaged(fmt::format("string {} of {} in the array of key {} does not fit into the file", i + 1,
                                 entry.count, quoted(entry.key)));
    }
  }
  entry.bytes = head_.subspan(begin, in_.offset() - begin);
  return {};
}

Status Parser::read_alignment() {
  const auto is_alignment = [](const MetaValue& entry) { return entry.key == "general.alignment"; };
  const auto entry = std::ranges::find_if(out_.entries, is_alignment);
  if (entry == out_.entries.end()) {
    return {};
  }
  if (entry->type != MetaType::kU32) {
    return damaged(fmt::format("the key 'general.alignment' must be u32, but is {}", entry->type_text()));
  }
  uint32_t value = 0;
  std::memcpy(&value, entry->bytes.data(), sizeof value);
  if (!std::has_single_bit(value)) {
    return damaged(fmt::format("the key 'general.alignment' is {}, not a power of two", value));
  }
  alignment_ = value;
  return {};
}

Status Parser::read_infos() {
  out_.tensors.reserve(n_tensors_);
  offsets_.reserve(n_tensors_);
  for (uint64_t i = 0; i < n_tensors_; ++i) {
    TRY(read_info(i));
  }
  const auto name_of = [&](uint32_t i) -> std::string_view { return out_.tensors[i].name; };
  const auto order = index_by_name(out_.tensors.size(), name_of);
  if (const auto twice = find_duplicate(order, name_of)) {
    return damaged(fmt::format("the tensor {} occurs twice", quoted(name_of(*twice))));
  }
  return {};
}

Status Parser::read_info(uint64_t index) {
  ASSIGN_OR_RETURN(const auto name,
                   read_string(kMaxNameBytes, fmt::format("the name of tensor {} of {}", index + 1, n_tensors_)));
  TensorInfo info;
  info.name = name;
  TRY(read_shape(info));
  const auto type = in_.read<int32_t>();
  const auto offset = in_.read<uint64_t>();
  if (!type || !offset) {
    return cut_off(fmt::format("the description of tensor {}", quoted(info.name)));
  }
  const auto dtype = dtype_from_gguf(*type);
  if (!dtype) {
    return {ErrorCode::kUnsupported, fmt::format("the tensor {} has the unknown type {}", quoted(info.name), *type)};
  }
  info.dtype = *dtype;
  const DTypeInfo& layout = dtype_info(*dtype);
  if (info.dims[0] % layout.block_elems != 0) {
    return damaged(fmt::format("the tensor {} is {} with rows of {} elements, not a multiple of its block of {}",
                               quoted(info.name), layout.name, info.dims[0], layout.block_elems));
  }
  const auto n_bytes = checked_mul(info.n_elems / layout.block_elems, layout.block_bytes);
  if (!n_bytes) {
    return damaged(fmt::format("the tensor {} has {} elements, too many to address", quoted(info.name), info.n_elems));
  }
  info.n_bytes = *n_bytes;
  offsets_.push_back(*offset);
  out_.tensors.push_back(std::move(info));
  return {};
}

Status Parser::read_shape(TensorInfo& info) {
  const auto n_dims = in_.read<uint32_t>();
  if (!n_dims) {
    return cut_off(fmt::format("the description of tensor {}", quoted(info.name)));
  }
  if (*n_dims > info.dims.size()) {
    return damaged(fmt::format("the tensor {} has {} dimensions, at most 4 are allowed", quoted(info.name), *n_dims));
  }
  info.n_dims = *n_dims;
  uint64_t product = 1;  // with empty dimensions counted as 1, so that no partial product can overflow later
  bool empty = false;
  for (uint32_t d = 0; d < info.n_dims; ++d) {
    const auto dim = in_.read<int64_t>();
    if (!dim) {
      return cut_off(fmt::format("the description of tensor {}", quoted(info.name)));
    }
    if (*dim < 0) {
      return damaged(fmt::format("dimension {} of tensor {} is negative: {}", d, quoted(info.name), *dim));
    }
    info.dims[d] = static_cast<uint64_t>(*dim);
    empty = empty || *dim == 0;
    const auto next = checked_mul(product, std::max<uint64_t>(info.dims[d], 1));
    if (!next || *next >= kMaxElems) {
      return damaged(fmt::format("the dimensions of tensor {} multiply to more than 2^63 elements", quoted(info.name)));
    }
    product = *next;
  }
  info.n_elems = empty ? 0 : product;
  return {};
}

Status Parser::place_tensors() {
  const auto data_begin = checked_align_up(in_.offset(), alignment_);
  CHECK(data_begin);  // an offset inside a file plus 2^31 cannot overflow
  uint64_t expected = 0;
  for (size_t i = 0; i < out_.tensors.size(); ++i) {
    TensorInfo& info = out_.tensors[i];
    if (offsets_[i] != expected) {
      return damaged(fmt::format("the tensor {} claims offset {}, but the tensors before it end at {}",
                                 quoted(info.name), offsets_[i], expected));
    }
    const auto begin = checked_add(*data_begin, expected);
    const auto end = begin ? checked_add(*begin, info.n_bytes) : std::nullopt;
    const auto padded = checked_align_up(info.n_bytes, alignment_);
    const auto next = padded ? checked_add(expected, *padded) : std::nullopt;
    if (!end || !next) {
      return damaged(fmt::format("the tensor {} with {} bytes lies beyond what can be addressed", quoted(info.name),
                                 info.n_bytes));
    }
    if (*end > file_bytes_ && info.n_bytes > 0) {
      return damaged(fmt::format("the tensor {} ends at byte {}, but the file has only {}: an incomplete download?",
                                 quoted(info.name), *end, file_bytes_));
    }
    info.file_offset = *begin;
    expected = *next;
  }
  const TensorInfo* last = out_.tensors.empty() ? nullptr : &out_.tensors.back();
  out_.ends = {last == nullptr ? in_.offset() : last->file_offset + last->n_bytes, *checked_add(*data_begin, expected)};
  return {};
}

}  // namespace

Result<std::optional<ParsedGguf>> parse_gguf(std::span<const std::byte> head, uint64_t file_bytes) {
  CHECK(head.size() <= file_bytes);
  return Parser(head, file_bytes).run();
}

Status check_end(std::span<const std::byte> bytes) {
  if (bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0) {
    return damaged("it is several GGUF files joined end to end; keep split files apart or merge them with gguf-split");
  }
  return {};
}

}  // namespace tessera

#include "gguf/gguf.h"

#include <algorithm>
#include <fmt/core.h>
#include <optional>
#include <utility>

#include "gguf/name_index.h"
#include "gguf/parse.h"

namespace tessera {
namespace {

constexpr uint32_t kMaxShards = 65535;  // split.count is a u16

// What a shard says about its place among the others.
struct SplitKeys {
  uint32_t no = 0;  // 0-based
  uint32_t count = 1;
};

Result<SplitKeys> split_keys(const Metadata& metadata) {
  SplitKeys keys;
  ASSIGN_OR_RETURN(keys.count, metadata.get_u32("split.count", 1));
  ASSIGN_OR_RETURN(keys.no, metadata.get_u32("split.no", 0));
  if (keys.count > kMaxShards) {
    return Status(ErrorCode::kInvalidData,
                  fmt::format("the key 'split.count' is {}, more than {} files", keys.count, kMaxShards));
  }
  return keys;
}

std::string shard_path(std::string_view prefix, uint64_t no, uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, no + 1, count);
}

// The part of `path` before "-NNNNN-of-NNNNN.gguf" when it is shard `no` of `count`.
std::optional<std::string> shard_prefix(std::string_view path, uint64_t no, uint64_t count) {
  const std::string ending = shard_path("", no, count);
  if (!path.ends_with(ending)) {
    return std::nullopt;
  }
  return std::string(path.substr(0, path.size() - ending.size()));
}

std::string file_name(std::string_view path) {
  return std::string(path.substr(path.find_last_of('/') + 1));
}

// Opens and parses the file at `path`; messages begin with its name.
struct OpenedShard {
  MappedFile file;
  ParsedGguf parsed;
};
Result<OpenedShard> open_shard(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, MappedFile::open(path));
  auto parsed = parse_gguf(file.bytes());
  if (!parsed.ok()) {
    return parsed.status().with_context(fmt::format("cannot read '{}'", path));
  }
  return OpenedShard{std::move(file), std::move(parsed).value()};
}

}  // namespace

Result<GgufFile> GgufFile::open(const std::string& path) {
  ASSIGN_OR_RETURN(auto first, open_shard(path));
  GgufFile result;
  result.path_ = path;
  result.version_ = first.parsed.version;
  result.metadata_ = Metadata(std::move(first.parsed.entries));
  result.tensors_ = std::move(first.parsed.tensors);
  result.shard_bytes_.push_back(first.file.bytes());
  result.files_.push_back(std::move(first.file));

  const auto keys = split_keys(result.metadata_);
  Status status = keys.status();
  if (keys.ok() && keys->count > 1) {
    status = result.add_shards(keys->count, keys->no);
  }
  if (status.ok()) {
    status = result.index_tensors();
  }
  if (!status.ok()) {
    return status.with_context(fmt::format("cannot read '{}'", path));
  }
  return result;
}

Result<GgufFile> GgufFile::open_memory(std::span<const std::byte> bytes, std::string name) {
  auto parsed = parse_gguf(bytes);
  if (!parsed.ok()) {
    return parsed.status().with_context(fmt::format("cannot read '{}'", name));
  }
  GgufFile result;
  result.path_ = std::move(name);
  result.version_ = parsed->version;
  result.metadata_ = Metadata(std::move(parsed->entries));
  result.tensors_ = std::move(parsed->tensors);
  result.shard_bytes_.push_back(bytes);
  const auto keys = split_keys(result.metadata_);
  Status status = keys.status();
  if (keys.ok() && keys->count > 1) {
    status = {ErrorCode::kInvalidArgument,
              fmt::format("it is one of {} split files, which can only be opened by path", keys->count)};
  }
  if (status.ok()) {
    status = result.index_tensors();
  }
  if (!status.ok()) {
    return status.with_context(fmt::format("cannot read '{}'", result.path_));
  }
  return result;
}

Status GgufFile::add_shards(uint32_t count, uint32_t no) {
  if (no >= count) {
    return {ErrorCode::kInvalidData, fmt::format("the key 'split.no' is {} of {} files", no, count)};
  }
  const auto prefix = shard_prefix(path_, no, count);
  if (no != 0) {
    const std::string first = prefix ? file_name(shard_path(*prefix, 0, count)) : "the first one";
    return {
        ErrorCode::kInvalidArgument,
        fmt::format("it is file {} of {}; a split model must be opened by its first file: {}", no + 1, count, first)};
  }
  if (!prefix) {
    return {ErrorCode::kInvalidData,
            fmt::format("it says that it is the first of {} split files, so its name must end in '{}'", count,
                        shard_path("", 0, count))};
  }
  for (uint32_t i = 1; i < count; ++i) {
    const std::string path = shard_path(*prefix, i, count);
    auto shard = open_shard(path);
    if (!shard.ok()) {
      return shard.status().with_context(fmt::format("file {} of {}", i + 1, count));
    }
    const Metadata metadata(std::move(shard->parsed.entries));
    ASSIGN_OR_RETURN(const auto keys, split_keys(metadata));
    if (!metadata.has("split.no") || keys.no != i || keys.count != count) {
      return {ErrorCode::kInvalidData, fmt::format("'{}' says that it is file {} of {}, but is named file {} of {}",
                                                   file_name(path), uint64_t{keys.no} + 1, keys.count, i + 1, count)};
    }
    if (tensors_.size() + shard->parsed.tensors.size() > kMaxTensors) {
      return {ErrorCode::kInvalidData, fmt::format("the files hold more than {} tensors", kMaxTensors)};
    }
    for (TensorInfo& info : shard->parsed.tensors) {
      info.shard = i;
      tensors_.push_back(std::move(info));
    }
    shard_bytes_.push_back(shard->file.bytes());
    files_.push_back(std::move(shard->file));
  }
  ASSIGN_OR_RETURN(const uint64_t n_tensors, metadata_.get_u64("split.tensors.count"));
  if (n_tensors != tensors_.size()) {
    return {ErrorCode::kInvalidData,
            fmt::format("the key 'split.tensors.count' promises {} tensors, but the {} files hold {}", n_tensors, count,
                        tensors_.size())};
  }
  return {};
}

Status GgufFile::index_tensors() {
  const auto name_of = [&](uint32_t i) -> std::string_view { return tensors_[i].name; };
  by_name_ = index_by_name(tensors_.size(), name_of);
  if (const auto twice = find_duplicate(by_name_, name_of)) {
    return {ErrorCode::kInvalidData,
            fmt::format("the tensor {} occurs in two of the split files", quoted(name_of(*twice)))};
  }
  return {};
}

const TensorInfo* GgufFile::find(std::string_view name) const {
  const auto index = find_by_name(by_name_, name, [&](uint32_t i) -> std::string_view { return tensors_[i].name; });
  return index ? &tensors_[*index] : nullptr;
}

std::span<const std::byte> GgufFile::data(const TensorInfo& tensor) const {
  // An empty tensor may stand at the very end, beyond the last byte.
  return tensor.n_bytes == 0 ? std::span<const std::byte>()
                             : shard_bytes_[tensor.shard].subspan(tensor.file_offset, tensor.n_bytes);
}

uint64_t GgufFile::file_bytes() const {
  uint64_t sum = 0;
  for (const auto& bytes : shard_bytes_) {
    sum += bytes.size();
  }
  return sum;
}

void GgufFile::advise(const TensorInfo& tensor, Access access) const {
  if (!files_.empty()) {
    files_[tensor.shard].advise(access, tensor.file_offset, tensor.n_bytes);
  }
}

Status GgufFile::check_unchanged() const {
  for (const MappedFile& file : files_) {
    TRY(file.check_unchanged());
  }
  return {};
}

}  // namespace tessera

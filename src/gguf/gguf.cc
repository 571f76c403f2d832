#include "gguf/gguf.h"

#include <algorithm>
#include <fmt/core.h>
#include <new>
#include <optional>
#include <utility>

#include "base/check.h"
#include "gguf/name_index.h"
#include "gguf/parse.h"

namespace tessera {
namespace {

constexpr uint32_t kMaxShards = 65535;  // split.count is a u16
// Bytes read at first of what precedes the tensors, enough for most vocabularies of 32,000 tokens; and at most, a
// hundred times what any model has.
constexpr uint64_t kFirstHeadBytes = 1 << 20;
constexpr uint64_t kMaxHeadBytes = 1 << 30;
// From here on an array has memory of its own. Only those of vocabularies are as long.
constexpr uint64_t kLargeArrayBytes = 64 << 10;

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

}  // namespace

Status GgufFile::Shard::read_at(uint64_t offset, std::span<std::byte> out) const {
  if (memory.empty()) {
    return file.read_at(offset, out);
  }
  std::ranges::copy(memory.subspan(offset, out.size()), out.begin());
  return {};
}

struct GgufFile::OpenedShard {
  Shard shard;
  ParsedGguf parsed;
};

// Opens and parses the file at `path`; messages begin with its name.
Result<GgufFile::OpenedShard> GgufFile::open_shard(const std::string& path) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::open(path));
  OpenedShard opened;
  opened.shard.file = std::move(file);
  const auto named = [&](const Status& status) { return status.with_context(fmt::format("cannot read '{}'", path)); };
  const uint64_t file_bytes = opened.shard.file.size();
  // Twice as much each time, so that the work stays linear.
  for (uint64_t head_bytes = kFirstHeadBytes;; head_bytes *= 2) {
    const uint64_t n = std::min({head_bytes, file_bytes, kMaxHeadBytes});
    opened.shard.head.reset();  // before the next one is made
    opened.shard.head.reset(new (std::nothrow) std::byte[n]);
    if (opened.shard.head == nullptr) {
      return named({ErrorCode::kOutOfMemory, fmt::format("no memory for the {} bytes before its tensors", n)});
    }
    const std::span head(opened.shard.head.get(), n);
    TRY(opened.shard.read_at(0, head));
    Result<std::optional<ParsedGguf>> parsed = parse_gguf(head, file_bytes);
    if (!parsed.ok()) {
      return named(parsed.status());
    }
    if (parsed->has_value()) {
      opened.parsed = std::move(**parsed);
      keep_entries(opened.shard, opened.parsed);
      break;
    }
    if (n == kMaxHeadBytes) {
      return named({ErrorCode::kInvalidData, fmt::format("more than {} bytes stand before its tensors", n)});
    }
  }
  const Status ends = check_ends(opened.shard, opened.parsed.ends);
  return ends.ok() ? Result<OpenedShard>(std::move(opened)) : named(ends);
}

// Gives back what was read beyond the entries: their keys and values move to a buffer of the right size, large arrays
// to one each.
void GgufFile::keep_entries(Shard& shard, ParsedGguf& parsed) {
  std::vector<std::unique_ptr<std::byte[]>> arrays(parsed.entries.size());
  uint64_t n_head = 0;
  bool ok = true;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const MetaValue& entry = parsed.entries[i];
    const bool large = entry.is_array() && entry.n_bytes >= kLargeArrayBytes;
    n_head += entry.key.size() + (large ? 0 : entry.n_bytes);
    if (large) {
      arrays[i].reset(new (std::nothrow) std::byte[entry.n_bytes]);
      ok = ok && arrays[i] != nullptr;
    }
  }
  std::unique_ptr<std::byte[]> head(new (std::nothrow) std::byte[n_head]);
  if (!ok || head == nullptr) {
    return;  // the larger buffer serves as well
  }
  std::byte* end = head.get();
  const auto append = [&end](std::span<const std::byte> bytes) {
    const std::span<const std::byte> moved(end, bytes.size());
    end = std::ranges::copy(bytes, end).out;
    return moved;
  };
  for (size_t i = 0; i < arrays.size(); ++i) {
    MetaValue& entry = parsed.entries[i];
    const auto key = append(std::as_bytes(std::span(entry.key)));
    entry.key = {reinterpret_cast<const char*>(key.data()), key.size()};
    if (arrays[i] != nullptr) {
      std::ranges::copy(entry.bytes, arrays[i].get());
      entry.bytes = {arrays[i].get(), entry.bytes.size()};
    } else {
      entry.bytes = append(entry.bytes);
    }
  }
  shard.head = std::move(head);
  shard.arrays = std::move(arrays);
}

Status GgufFile::check_ends(const Shard& shard, std::span<const uint64_t> ends) {
  for (const uint64_t at : ends) {
    std::array<std::byte, 4> bytes{};
    if (at < shard.size() && shard.size() - at >= bytes.size()) {
      TRY(shard.read_at(at, bytes));
      TRY(check_end(bytes));
    }
  }
  return {};
}

Status GgufFile::take_first(OpenedShard first) {
  version_ = first.parsed.version;
  metadata_ = Metadata(std::move(first.parsed.entries));
  tensors_ = std::move(first.parsed.tensors);
  const bool by_path = first.shard.memory.empty();
  shards_.push_back(std::move(first.shard));
  ASSIGN_OR_RETURN(const SplitKeys keys, split_keys(metadata_));
  if (keys.count > 1) {
    if (!by_path) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("it is one of {} split files, which can only be opened by path", keys.count)};
    }
    TRY(add_shards(keys.count, keys.no));
  }
  return index_tensors();
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  ASSIGN_OR_RETURN(OpenedShard first, open_shard(path));
  GgufFile result;
  result.path_ = path;
  const Status status = result.take_first(std::move(first));
  if (!status.ok()) {
    return status.with_context(fmt::format("cannot read '{}'", path));
  }
  return result;
}

Result<GgufFile> GgufFile::open_memory(std::span<const std::byte> bytes, std::string name) {
  GgufFile result;
  result.path_ = std::move(name);
  const auto named = [&](const Status& status) {
    return status.with_context(fmt::format("cannot read '{}'", result.path_));
  };
  Result<std::optional<ParsedGguf>> parsed = parse_gguf(bytes, bytes.size());
  if (!parsed.ok()) {
    return named(parsed.status());
  }
  OpenedShard first;
  first.shard.memory = bytes;
  first.parsed = std::move(**parsed);
  Status status = check_ends(first.shard, first.parsed.ends);
  if (status.ok()) {
    status = result.take_first(std::move(first));
  }
  if (!status.ok()) {
    return named(status);
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
    shard->shard.head.reset();
    shard->shard.arrays.clear();
    shards_.push_back(std::move(shard->shard));
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

void GgufFile::forget_arrays(std::string_view prefix) {
  std::vector<MetaValue> entries(metadata_.entries().begin(), metadata_.entries().end());
  std::vector<std::unique_ptr<std::byte[]>>& arrays = shards_.front().arrays;
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i] != nullptr && entries[i].key.starts_with(prefix)) {
      arrays[i].reset();
      entries[i].bytes = {};
    }
  }
  metadata_ = Metadata(std::move(entries));
}

Result<std::vector<std::byte>> GgufFile::read_value(const MetaValue& value) const {
  const Shard& first = shards_.front();
  TRY(first.file.check_unchanged());
  std::vector<std::byte> bytes(value.n_bytes);
  TRY(first.read_at(value.file_offset, bytes));
  return bytes;
}

const TensorInfo* GgufFile::find(std::string_view name) const {
  const auto index = find_by_name(by_name_, name, [&](uint32_t i) -> std::string_view { return tensors_[i].name; });
  return index ? &tensors_[*index] : nullptr;
}

Status GgufFile::read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out) const {
  CHECK(offset <= tensor.n_bytes && out.size() <= tensor.n_bytes - offset);
  // An empty tensor may stand at the very end, beyond the last byte.
  return out.empty() ? Status() : shards_[tensor.shard].read_at(tensor.file_offset + offset, out);
}

void GgufFile::will_need(const TensorInfo& tensor, uint64_t offset, uint64_t length) const {
  shards_[tensor.shard].file.will_need(tensor.file_offset + offset, length);
}

uint64_t GgufFile::file_bytes() const {
  uint64_t sum = 0;
  for (const Shard& shard : shards_) {
    sum += shard.size();
  }
  return sum;
}

Status GgufFile::check_unchanged() const {
  for (const Shard& shard : shards_) {
    TRY(shard.file.check_unchanged());
  }
  return {};
}

}  // namespace tessera

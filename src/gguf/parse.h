#pragma once
// One GGUF file's bytes to checked entries and tensor infos. Internal to the room; people use gguf.h.
//
// Never reads outside the bytes it is given, never recurses, and does work and allocates memory in proportion to the
// bytes it has actually read, not to the counts that the file claims.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "gguf/metadata.h"

namespace tessera {

/// More entries or tensors than any real model has: refused before any is read, so that bookkeeping stays within 64
/// MiB.
inline constexpr uint64_t kMaxMetaEntries = 65536;
inline constexpr uint64_t kMaxTensors = 131072;

struct ParsedGguf {
  uint32_t version = 0;
  std::vector<MetaValue> entries;   // file order, keys distinct
  std::vector<TensorInfo> tensors;  // file order, names distinct, shard = 0
  std::array<uint64_t, 2> ends{};   // where the last tensor ends, without and with its padding
};

/// Parses and checks what stands before the tensors of a file of file_bytes. head: its first bytes; nothing when they
/// are too few to say more. Entries are views into them. Messages do not name the file; the caller adds it.
Result<std::optional<ParsedGguf>> parse_gguf(std::span<const std::byte> head, uint64_t file_bytes);

/// Why a file at one of whose `ends` these bytes stand is not to be read as one: split files joined end to end look
/// whole, but hold only the first part's tensors. Other bytes after the last tensor are harmless.
Status check_end(std::span<const std::byte> bytes);

/// Why bytes that do not begin with a GGUF header are none, as half a sentence for people: "it is an HTML page, …".
std::string describe_foreign(std::span<const std::byte> bytes);

/// A key or name from a file, quoted, escaped and cut short so that it can stand in a message.
std::string quoted(std::string_view name);

}  // namespace tessera

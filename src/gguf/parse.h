#pragma once
// One GGUF file's bytes to checked entries and tensor infos. Internal to the room; people use gguf.h.
//
// Never reads outside `bytes`, never recurses, and does work and allocates memory in proportion to the bytes it has
// actually read, not to the counts that the file claims.

#include <cstddef>
#include <cstdint>
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
};

/// Parses and checks a whole file. Messages do not name the file; the caller adds it.
Result<ParsedGguf> parse_gguf(std::span<const std::byte> bytes);

/// Why bytes that do not begin with a GGUF header are none, as half a sentence for people: "it is an HTML page, …".
std::string describe_foreign(std::span<const std::byte> bytes);

/// A key or name from a file, quoted, escaped and cut short so that it can stand in a message.
std::string quoted(std::string_view name);

}  // namespace tessera

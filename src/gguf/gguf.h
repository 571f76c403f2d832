#pragma once
// A GGUF model file (version 2 or 3, little-endian), possibly split into several, open for reading.
//
// open() checks everything once: counts, lengths, types, names, alignment, and that each tensor's bytes lie inside the
// file. Metadata are kept in memory and are views, valid as long as the GgufFile (moving it keeps them valid); the
// large arrays of a vocabulary can be forgotten once they have been used. Tensors stay in the file and are read where
// they are wanted: a file that is cut short or lost meanwhile makes read() fail, never the process. Work and memory are
// linear in the file's size whatever its counts claim; nothing is allocated beyond twice what stands before the tensors
// + 64 MiB. But for forget_arrays() and override_value(), immutable and callable from any thread.
//
// Format: the GGUF specification and docs/gguf-facts.md 1.1–1.3. A failure is one sentence that names the file and the
// key or tensor: kNotFound, kIo (the system), kInvalidData (damaged, hostile, not GGUF), kUnsupported (another version,
// byte order or tensor type), kInvalidArgument (not the first of split files), kOutOfMemory.

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "gguf/metadata.h"
#include "gguf/override.h"
#include "tensor/dtype.h"

namespace tessera {

/// What a file says about one tensor.
struct TensorInfo {
  std::string name;  // shorter than 64 bytes
  DType dtype = DType::kF32;
  uint32_t n_dims = 0;                          // 0 … 4
  std::array<uint64_t, 4> dims = {1, 1, 1, 1};  // in elements, fastest first; 1 beyond n_dims
  uint64_t n_elems = 0;                         // product of dims
  uint64_t n_bytes = 0;                         // without padding
  uint32_t shard = 0;                           // which file it lies in, 0-based
  uint64_t file_offset = 0;                     // where its bytes begin in that file

  /// Number of rows (dims[0] elements each), and bytes of one row. Zero rows or bytes for an empty tensor.
  [[nodiscard]] uint64_t n_rows() const { return dims[1] * dims[2] * dims[3]; }
  [[nodiscard]] uint64_t bytes_per_row() const { return row_bytes(dtype, dims[0]); }
};

struct ParsedGguf;

class GgufFile {
 public:
  /// Opens the file at `path`; if it is the first of several (split.count > 1), opens all of them.
  static Result<GgufFile> open(const std::string& path);

  /// Reads a whole single-file GGUF from memory, which must outlive the result. `name` stands for the path in messages.
  static Result<GgufFile> open_memory(std::span<const std::byte> bytes, std::string name = "memory");

  [[nodiscard]] uint32_t version() const { return version_; }
  /// The first file's metadata; that of the other files is checked and dropped.
  [[nodiscard]] const Metadata& metadata() const { return metadata_; }
  /// Gives back the memory of the large arrays (from 64 KiB on) whose keys begin with prefix: their entries stay, but
  /// without bytes. Pointers to entries, and views into those arrays, end. Forgets nothing of open_memory().
  void forget_arrays(std::string_view prefix);
  /// From now on metadata() has this value, in the type that the file has there (an f32 stays one), so that it cannot
  /// be told from a file with it. A key that the file lacks is added as converters write it: u32 where that holds the
  /// number, else i64; f32; bool; string. The file is not written to. Pointers to entries end.
  /// Errors: kInvalidArgument naming the key and what stands there, when that is of another kind, is an array, has no
  /// such number, or says how the file is laid out; kNotFound: a key of the architecture, and the file names none.
  Status override_value(const MetadataOverride& given);
  /// The bytes of a value of metadata(), read from the file, forgotten or not. Somebody may have written to the file:
  /// they are not checked again. REQUIRES: it was not overridden. Errors: kIo.
  [[nodiscard]] Result<std::vector<std::byte>> read_value(const MetaValue& value) const;
  /// All tensors, in the order of the files.
  [[nodiscard]] std::span<const TensorInfo> tensors() const { return tensors_; }
  /// The tensor, or null.
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  /// Fills `out` with the tensor's bytes from byte `offset` on. REQUIRES: `tensor` is one of this file's; offset +
  /// out.size() <= n_bytes. Errors: kIo, as InputFile::read_at(); then `out` holds anything.
  Status read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out) const;
  /// Hints that these bytes of the tensor will be read soon. REQUIRES: as read().
  void will_need(const TensorInfo& tensor, uint64_t offset, uint64_t length) const;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint32_t n_shards() const { return static_cast<uint32_t>(shards_.size()); }
  /// Sum of all files' sizes.
  [[nodiscard]] uint64_t file_bytes() const;

  /// kIo when one of the files is no longer as it was when it was opened.
  [[nodiscard]] Status check_unchanged() const;

 private:
  // One file.
  struct Shard {
    InputFile file;                                    // none for open_memory
    std::unique_ptr<std::byte[]> head;                 // keys and values; none for open_memory
    std::vector<std::unique_ptr<std::byte[]>> arrays;  // by entry: the bytes of a large array, which are not in head
    std::span<const std::byte> memory;                 // the whole file, of open_memory
    [[nodiscard]] uint64_t size() const { return memory.empty() ? file.size() : memory.size(); }
    Status read_at(uint64_t offset, std::span<std::byte> out) const;
  };
  struct OpenedShard;

  GgufFile() = default;
  static Result<OpenedShard> open_shard(const std::string& path);
  static void keep_entries(Shard& shard, ParsedGguf& parsed);
  static Status check_ends(const Shard& shard, std::span<const uint64_t> ends);
  Status take_first(OpenedShard shard);
  Status add_shards(uint32_t count, uint32_t no);
  Status index_tensors();

  std::string path_;
  uint32_t version_ = 0;
  std::vector<Shard> shards_;
  Metadata metadata_;
  std::list<std::string> overrides_;  // keys and values of metadata_ that are not the file's
  std::vector<TensorInfo> tensors_;
  std::vector<uint32_t> by_name_;  // indices into tensors_, sorted by name
};

}  // namespace tessera

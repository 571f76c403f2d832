#pragma once
// Writes GGUF files (version 3): metadata and tensors gathered in memory, then one file or several split files. For
// tests and tools; not for streaming models that do not fit into memory. One thread at a time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/metadata.h"
#include "tensor/dtype.h"

namespace tessera {

class GgufWriter {
 public:
  /// alignment: of the data section and each tensor. REQUIRES: a power of two. Stated in the file unless it is 32.
  explicit GgufWriter(uint32_t alignment = 32);

  /// Each sets a key, replacing an earlier value in its place.
  void set_u32(std::string_view key, uint32_t value);
  void set_i32(std::string_view key, int32_t value);
  void set_u64(std::string_view key, uint64_t value);
  void set_f32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_u32_array(std::string_view key, std::span<const uint32_t> values);
  void set_i32_array(std::string_view key, std::span<const int32_t> values);
  void set_f32_array(std::string_view key, std::span<const float> values);
  void set_bool_array(std::string_view key, std::span<const uint8_t> values);  // 0 or 1
  void set_string_array(std::string_view key, std::span<const std::string> values);
  /// Any value, in the file's own encoding.
  void set_raw(const MetaValue& value);
  /// All keys of a file except those that the writer decides itself (general.alignment, split.*).
  void copy_metadata(const Metadata& metadata);

  /// Appends a tensor; dims fastest first, at most 4. The bytes must stay valid until writing is done; the second form
  /// keeps them itself. Errors: kInvalidArgument naming the tensor when its name is too long or taken, its rows are not
  /// whole blocks, or the number of bytes is not what type and dims ask for; then nothing was added.
  Status add_tensor(std::string_view name, DType dtype, std::span<const uint64_t> dims,
                    std::span<const std::byte> bytes);
  Status add_tensor(std::string_view name, DType dtype, std::span<const uint64_t> dims, std::vector<std::byte>&& bytes);

  /// The whole file in memory.
  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  /// The whole file at `path`. Errors: kNotFound, kIo; then the path is as it was.
  [[nodiscard]] Status write(const std::string& path) const;
  /// Split files PREFIX-00001-of-0000N.gguf … of at most max_tensors tensors each (at least one file), metadata in the
  /// first. Result: their paths. Errors as write(); files written before an error stay. REQUIRES: max_tensors > 0.
  [[nodiscard]] Result<std::vector<std::string>> write_split(std::string_view prefix, size_t max_tensors) const;

 private:
  struct Entry {
    std::string key;
    std::string encoded;  // type and value
  };
  struct Tensor {
    std::string name;
    DType dtype;
    std::vector<uint64_t> dims;
    std::span<const std::byte> bytes;
  };

  void set(std::string_view key, std::string encoded);
  [[nodiscard]] std::string encode_head(std::span<const Entry> entries, std::span<const Tensor> tensors) const;
  template <typename Append>
  Status emit(std::span<const Entry> entries, std::span<const Tensor> tensors, Append append) const;

  uint32_t alignment_;
  std::vector<Entry> entries_;
  std::vector<Tensor> tensors_;
  std::deque<std::vector<std::byte>> owned_;  // bytes of tensors that were handed over
};

}  // namespace tessera

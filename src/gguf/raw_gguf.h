#pragma once
// For tests: GGUF bytes written field by field, right or wrong. Unlike GgufWriter it checks and completes nothing.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gguf/metadata.h"
#include "tensor/dtype.h"

namespace tessera {

class RawGguf {
 public:
  template <typename T>
  RawGguf& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  RawGguf& text(std::string_view value) {
    bytes_.append(value);
    return *this;
  }
  RawGguf& string(std::string_view value) { return number(uint64_t{value.size()}).text(value); }
  RawGguf& type(MetaType value) { return number(static_cast<int32_t>(value)); }

  RawGguf& header(uint64_t n_tensors, uint64_t n_entries, uint32_t version = 3) {
    return text("GGUF").number(version).number(n_tensors).number(n_entries);
  }
  template <typename T>
  RawGguf& entry(std::string_view key, MetaType value_type, T value) {
    return string(key).type(value_type).number(value);
  }
  RawGguf& entry_string(std::string_view key, std::string_view value) {
    return string(key).type(MetaType::kString).string(value);
  }
  /// Key, type and count of an array; its elements must follow.
  RawGguf& entry_array(std::string_view key, MetaType elem_type, uint64_t count) {
    return string(key).type(MetaType::kArray).type(elem_type).number(count);
  }
  RawGguf& tensor(std::string_view name, std::initializer_list<uint64_t> dims, int32_t dtype_id, uint64_t offset) {
    string(name).number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) {
      number(dim);
    }
    return number(dtype_id).number(offset);
  }
  RawGguf& pad(size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  RawGguf& zeros(size_t n) {
    bytes_.append(n, '\0');
    return *this;
  }

  [[nodiscard]] size_t size() const { return bytes_.size(); }
  [[nodiscard]] const std::string& str() const { return bytes_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)); }

 private:
  std::string bytes_;
};

}  // namespace tessera

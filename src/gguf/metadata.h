#pragma once
// The key-value pairs of a GGUF file, with getters that check and convert types.
//
// Keys and values are views into the file's bytes: nothing large is copied, and a Metadata (and every view that it
// hands out) is valid as long as the GgufFile it came from. Every value has been checked against the file's bounds when
// the file was opened. Immutable, callable from any thread.
//
// Getters come in pairs: `get_x(key)` fails with kNotFound when the key is missing, `get_x(key, fallback)` returns the
// fallback then. Both fail with kInvalidData, naming key, wanted and found type, when the value is of another kind:
// integer getters take any integer type whose value is in range, float getters any float or integer, bool getters a
// bool or an integer 0 or 1. To ask for an array that was forgotten is a mistake of ours: kInternal.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

/// Value types as GGUF numbers them.
enum class MetaType : int32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// "u32", "string", …; "unknown" for other numbers.
std::string_view meta_type_name(MetaType type);

/// One key with its value.
struct MetaValue {
  std::string_view key;
  MetaType type = MetaType::kU8;       // kArray for arrays
  MetaType elem_type = MetaType::kU8;  // type of the elements of an array, else `type`
  uint64_t count = 1;                  // number of elements, 1 for a scalar
  std::span<const std::byte> bytes;    // the elements as they lie in the file; a string in it has a u64 length first
  uint64_t file_offset = 0;            // where they begin in the file
  uint64_t n_bytes = 0;                // what they take there

  [[nodiscard]] bool is_array() const { return type == MetaType::kArray; }
  /// Whether bytes are no longer in memory: see GgufFile::forget_arrays().
  [[nodiscard]] bool is_forgotten() const { return bytes.size() < n_bytes; }
  /// For people: "u32", "array of 5 string".
  [[nodiscard]] std::string type_text() const;
};

class Metadata {
 public:
  Metadata() = default;
  /// Takes checked entries in file order. REQUIRES: no two keys are equal.
  explicit Metadata(std::vector<MetaValue> entries);

  /// All entries in file order.
  [[nodiscard]] std::span<const MetaValue> entries() const { return entries_; }
  /// The entry, or null.
  [[nodiscard]] const MetaValue* find(std::string_view key) const;
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }

  [[nodiscard]] Result<uint32_t> get_u32(std::string_view key) const;
  [[nodiscard]] Result<uint32_t> get_u32(std::string_view key, uint32_t fallback) const;
  [[nodiscard]] Result<int32_t> get_i32(std::string_view key) const;
  [[nodiscard]] Result<int32_t> get_i32(std::string_view key, int32_t fallback) const;
  [[nodiscard]] Result<uint64_t> get_u64(std::string_view key) const;
  [[nodiscard]] Result<uint64_t> get_u64(std::string_view key, uint64_t fallback) const;
  [[nodiscard]] Result<float> get_f32(std::string_view key) const;
  [[nodiscard]] Result<float> get_f32(std::string_view key, float fallback) const;
  [[nodiscard]] Result<bool> get_bool(std::string_view key) const;
  [[nodiscard]] Result<bool> get_bool(std::string_view key, bool fallback) const;
  [[nodiscard]] Result<std::string_view> get_string(std::string_view key) const;
  [[nodiscard]] Result<std::string_view> get_string(std::string_view key, std::string_view fallback) const;

  /// Arrays, copied element by element (strings are views). A scalar is not an array.
  [[nodiscard]] Result<std::vector<uint32_t>> get_u32_array(std::string_view key) const;
  [[nodiscard]] Result<std::vector<int32_t>> get_i32_array(std::string_view key) const;
  [[nodiscard]] Result<std::vector<float>> get_f32_array(std::string_view key) const;
  [[nodiscard]] Result<std::vector<uint8_t>> get_bool_array(std::string_view key) const;  // 0 or 1
  [[nodiscard]] Result<std::vector<std::string_view>> get_string_array(std::string_view key) const;

  /// One value per layer: a scalar stands for all layers, an array must have exactly n_layer elements. The second form
  /// gives n_layer times the fallback when the key is missing. Errors also: kInvalidData above kMaxLayers layers,
  /// before anything is allocated.
  [[nodiscard]] Result<std::vector<uint32_t>> get_u32_per_layer(std::string_view key, uint32_t n_layer) const;
  [[nodiscard]] Result<std::vector<uint32_t>> get_u32_per_layer(std::string_view key, uint32_t n_layer,
                                                                uint32_t fallback) const;
  [[nodiscard]] Result<std::vector<float>> get_f32_per_layer(std::string_view key, uint32_t n_layer) const;
  [[nodiscard]] Result<std::vector<float>> get_f32_per_layer(std::string_view key, uint32_t n_layer,
                                                             float fallback) const;
  [[nodiscard]] Result<std::vector<uint8_t>> get_bool_per_layer(std::string_view key, uint32_t n_layer) const;
  [[nodiscard]] Result<std::vector<uint8_t>> get_bool_per_layer(std::string_view key, uint32_t n_layer,
                                                                bool fallback) const;

  /// More layers than this is taken for damage.
  static constexpr uint32_t kMaxLayers = 4096;

 private:
  std::vector<MetaValue> entries_;
  std::vector<uint32_t> by_key_;  // indices into entries_, sorted by key
};

}  // namespace tessera

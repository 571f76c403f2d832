#include "gguf/metadata.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/core.h>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "gguf/name_index.h"
#include "gguf/parse.h"

namespace tessera {
namespace {

// The value of T at p, which may be unaligned.
template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Calls visit(element) with element i of a fixed-size type as its own C++ type; false for strings.
template <typename Visit>
bool visit_number(const MetaValue& value, uint64_t i, Visit visit) {
  const std::byte* p = value.bytes.data();
  switch (value.elem_type) {
    case MetaType::kU8: visit(load<uint8_t>(p + i)); return true;
    case MetaType::kI8: visit(load<int8_t>(p + i)); return true;
    case MetaType::kU16: visit(load<uint16_t>(p + 2 * i)); return true;
    case MetaType::kI16: visit(load<int16_t>(p + 2 * i)); return true;
    case MetaType::kU32: visit(load<uint32_t>(p + 4 * i)); return true;
    case MetaType::kI32: visit(load<int32_t>(p + 4 * i)); return true;
    case MetaType::kF32: visit(load<float>(p + 4 * i)); return true;
    case MetaType::kBool: visit(load<uint8_t>(p + i) != 0); return true;
    case MetaType::kU64: visit(load<uint64_t>(p + 8 * i)); return true;
    case MetaType::kI64: visit(load<int64_t>(p + 8 * i)); return true;
    case MetaType::kF64: visit(load<double>(p + 8 * i)); return true;
    case MetaType::kString:
    case MetaType::kArray: return false;
  }
  return false;
}

// The conversions that getters allow. Nothing: this kind of value, or this value, does not fit the wanted type.
template <typename Want, typename Have>
std::optional<Want> convert(Have have) {
  if constexpr (std::is_same_v<Want, bool>) {
    if constexpr (std::is_same_v<Have, bool>) {
      return have;
    } else if constexpr (std::is_integral_v<Have>) {
      return have == 0 || have == 1 ? std::optional(have == 1) : std::nullopt;
    } else {
      return std::nullopt;
    }
  } else if constexpr (std::is_floating_point_v<Want> && !std::is_same_v<Have, bool>) {
    // A finite f64 beyond float32's range is no float32; converting it would be undefined.
    if constexpr (std::is_same_v<Have, double>) {
      if (std::isfinite(have) && std::abs(have) > static_cast<double>(std::numeric_limits<Want>::max())) {
        return std::nullopt;
      }
    }
    return static_cast<Want>(have);
  } else if constexpr (std::is_integral_v<Have> && !std::is_same_v<Have, bool>) {
    return std::in_range<Want>(have) ? std::optional(static_cast<Want>(have)) : std::nullopt;
  } else {
    return std::nullopt;
  }
}

template <typename T>
constexpr std::string_view kWantedName = "string";
template <>
constexpr std::string_view kWantedName<uint32_t> = "u32";
template <>
constexpr std::string_view kWantedName<int32_t> = "i32";
template <>
constexpr std::string_view kWantedName<uint64_t> = "u64";
template <>
constexpr std::string_view kWantedName<float> = "f32";
template <>
constexpr std::string_view kWantedName<bool> = "bool";

Status missing(std::string_view key) {
  return {ErrorCode::kNotFound, fmt::format("the key {} is missing from the model file", quoted(key))};
}

// How the value reads in a message: numbers as they are, strings and arrays only by type.
std::string value_text(const MetaValue& value) {
  std::string text = value.type_text();
  if (!value.is_array()) {
    visit_number(value, 0, [&](auto number) { text += fmt::format(" {}", number); });
  }
  return text;
}

Status wrong_type(const MetaValue& value, std::string_view wanted) {
  return {ErrorCode::kInvalidData,
          fmt::format("the key {} must be {}, but is {}", quoted(value.key), wanted, value_text(value))};
}

template <typename T>
std::optional<T> number_at(const MetaValue& value, uint64_t i) {
  std::optional<T> result;
  visit_number(value, i, [&](auto have) { result = convert<T>(have); });
  return result;
}

// The string that begins at `offset` of the value. Clipped to the value: the file may have been written to since it
// was checked.
std::string_view string_at(const MetaValue& value, uint64_t offset) {
  const uint64_t begin = offset + sizeof(uint64_t);
  if (begin > value.bytes.size()) {
    return {};
  }
  const auto length = std::min<uint64_t>(load<uint64_t>(value.bytes.data() + offset), value.bytes.size() - begin);
  return {reinterpret_cast<const char*>(value.bytes.data()) + begin, static_cast<size_t>(length)};
}

template <typename T>
Result<T> get_scalar(const Metadata& metadata, std::string_view key) {
  const MetaValue* value = metadata.find(key);
  if (value == nullptr) {
    return missing(key);
  }
  if (!value->is_array()) {
    if constexpr (std::is_same_v<T, std::string_view>) {
      if (value->type == MetaType::kString) {
        return string_at(*value, 0);
      }
    } else if (const auto number = number_at<T>(*value, 0)) {
      return *number;
    }
  }
  return wrong_type(*value, kWantedName<T>);
}

template <typename T>
Result<T> get_scalar(const Metadata& metadata, std::string_view key, T fallback) {
  return metadata.has(key) ? get_scalar<T>(metadata, key) : Result<T>(fallback);
}

Status check_in_memory(const MetaValue& value) {
  return value.is_forgotten()
             ? Status(ErrorCode::kInternal, fmt::format("the array of key {} was forgotten", quoted(value.key)))
             : Status();
}

// Elements of an array of numbers; bools are stored as bytes.
template <typename T, typename Stored>
Result<std::vector<Stored>> elements(const MetaValue& value) {
  TRY(check_in_memory(value));
  std::vector<Stored> out;
  out.reserve(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    const auto number = number_at<T>(value, i);
    if (!number) {
      return Status(ErrorCode::kInvalidData,
                    fmt::format("the key {} must be an array of {}, but is {} (element {} does not fit)",
                                quoted(value.key), kWantedName<T>, value.type_text(), i));
    }
    out.push_back(static_cast<Stored>(*number));
  }
  return out;
}

template <typename T, typename Stored = T>
Result<std::vector<Stored>> get_array(const Metadata& metadata, std::string_view key) {
  const MetaValue* value = metadata.find(key);
  if (value == nullptr) {
    return missing(key);
  }
  if (!value->is_array()) {
    return wrong_type(*value, fmt::format("an array of {}", kWantedName<T>));
  }
  return elements<T, Stored>(*value);
}

template <typename T, typename Stored = T>
Result<std::vector<Stored>> per_layer(const Metadata& metadata, std::string_view key, uint32_t n_layer,
                                      std::optional<T> fallback) {
  if (n_layer > Metadata::kMaxLayers) {
    return Status(ErrorCode::kInvalidData, fmt::format("a model of {} layers is taken for damage; at most {} are read",
                                                       n_layer, Metadata::kMaxLayers));
  }
  const MetaValue* value = metadata.find(key);
  if (value == nullptr) {
    return fallback ? Result(std::vector<Stored>(n_layer, static_cast<Stored>(*fallback)))
                    : Result<std::vector<Stored>>(missing(key));
  }
  if (!value->is_array()) {
    ASSIGN_OR_RETURN(const T scalar, get_scalar<T>(metadata, key));
    return std::vector<Stored>(n_layer, static_cast<Stored>(scalar));
  }
  if (value->count != n_layer) {
    return Status(ErrorCode::kInvalidData,
                  fmt::format("the key {} must have one value for each of {} layers, but is {}", quoted(key), n_layer,
                              value->type_text()));
  }
  return elements<T, Stored>(*value);
}

}  // namespace

std::string_view meta_type_name(MetaType type) {
  switch (type) {
    case MetaType::kU8: return "u8";
    case MetaType::kI8: return "i8";
    case MetaType::kU16: return "u16";
    case MetaType::kI16: return "i16";
    case MetaType::kU32: return "u32";
    case MetaType::kI32: return "i32";
    case MetaType::kF32: return "f32";
    case MetaType::kBool: return "bool";
    case MetaType::kString: return "string";
    case MetaType::kArray: return "array";
    case MetaType::kU64: return "u64";
    case MetaType::kI64: return "i64";
    case MetaType::kF64: return "f64";
  }
  return "unknown";
}

std::string MetaValue::type_text() const {
  return is_array() ? fmt::format("array of {} {}", count, meta_type_name(elem_type))
                    : std::string(meta_type_name(type));
}

Metadata::Metadata(std::vector<MetaValue> entries) : entries_(std::move(entries)) {
  by_key_ = index_by_name(entries_.size(), [&](uint32_t i) { return entries_[i].key; });
}

const MetaValue* Metadata::find(std::string_view key) const {
  const auto index = find_by_name(by_key_, key, [&](uint32_t i) { return entries_[i].key; });
  return index ? &entries_[*index] : nullptr;
}

Result<uint32_t> Metadata::get_u32(std::string_view key) const {
  return get_scalar<uint32_t>(*this, key);
}
Result<uint32_t> Metadata::get_u32(std::string_view key, uint32_t fallback) const {
  return get_scalar<uint32_t>(*this, key, fallback);
}
Result<int32_t> Metadata::get_i32(std::string_view key) const {
  return get_scalar<int32_t>(*this, key);
}
Result<int32_t> Metadata::get_i32(std::string_view key, int32_t fallback) const {
  return get_scalar<int32_t>(*this, key, fallback);
}
Result<uint64_t> Metadata::get_u64(std::string_view key) const {
  return get_scalar<uint64_t>(*this, key);
}
Result<uint64_t> Metadata::get_u64(std::string_view key, uint64_t fallback) const {
  return get_scalar<uint64_t>(*this, key, fallback);
}
Result<float> Metadata::get_f32(std::string_view key) const {
  return get_scalar<float>(*this, key);
}
Result<float> Metadata::get_f32(std::string_view key, float fallback) const {
  return get_scalar<float>(*this, key, fallback);
}
Result<bool> Metadata::get_bool(std::string_view key) const {
  return get_scalar<bool>(*this, key);
}
Result<bool> Metadata::get_bool(std::string_view key, bool fallback) const {
  return get_scalar<bool>(*this, key, fallback);
}
Result<std::string_view> Metadata::get_string(std::string_view key) const {
  return get_scalar<std::string_view>(*this, key);
}
Result<std::string_view> Metadata::get_string(std::string_view key, std::string_view fallback) const {
  return get_scalar<std::string_view>(*this, key, fallback);
}

Result<std::vector<uint32_t>> Metadata::get_u32_array(std::string_view key) const {
  return get_array<uint32_t>(*this, key);
}
Result<std::vector<int32_t>> Metadata::get_i32_array(std::string_view key) const {
  return get_array<int32_t>(*this, key);
}
Result<std::vector<float>> Metadata::get_f32_array(std::string_view key) const {
  return get_array<float>(*this, key);
}
Result<std::vector<uint8_t>> Metadata::get_bool_array(std::string_view key) const {
  return get_array<bool, uint8_t>(*this, key);
}

Result<std::vector<std::string_view>> Metadata::get_string_array(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) {
    return missing(key);
  }
  if (!value->is_array() || value->elem_type != MetaType::kString) {
    return wrong_type(*value, "an array of string");
  }
  TRY(check_in_memory(*value));
  std::vector<std::string_view> out;
  out.reserve(value->count);
  uint64_t offset = 0;
  for (uint64_t i = 0; i < value->count; ++i) {
    out.push_back(string_at(*value, offset));
    offset += sizeof(uint64_t) + out.back().size();
  }
  return out;
}

Result<std::vector<uint32_t>> Metadata::get_u32_per_layer(std::string_view key, uint32_t n_layer) const {
  return per_layer<uint32_t>(*this, key, n_layer, std::nullopt);
}
Result<std::vector<uint32_t>> Metadata::get_u32_per_layer(std::string_view key, uint32_t n_layer,
                                                          uint32_t fallback) const {
  return per_layer<uint32_t>(*this, key, n_layer, fallback);
}
Result<std::vector<float>> Metadata::get_f32_per_layer(std::string_view key, uint32_t n_layer) const {
  return per_layer<float>(*this, key, n_layer, std::nullopt);
}
Result<std::vector<float>> Metadata::get_f32_per_layer(std::string_view key, uint32_t n_layer, float fallback) const {
  return per_layer<float>(*this, key, n_layer, fallback);
}
Result<std::vector<uint8_t>> Metadata::get_bool_per_layer(std::string_view key, uint32_t n_layer) const {
  return per_layer<bool, uint8_t>(*this, key, n_layer, std::nullopt);
}
Result<std::vector<uint8_t>> Metadata::get_bool_per_layer(std::string_view key, uint32_t n_layer, bool fallback) const {
  return per_layer<bool, uint8_t>(*this, key, n_layer, fallback);
}

}  // namespace tessera

#include "gguf/metadata_json.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// The T at the front of bytes. What is missing counts as 0: the file may have been written to since it was checked.
template <typename T>
T take(std::span<const std::byte>& bytes) {
  T value{};
  const size_t n = std::min(sizeof value, bytes.size());
  std::memcpy(&value, bytes.data(), n);
  bytes = bytes.subspan(n);
  return value;
}

// The double that has the float's shortest digits: 1e-05, not 9.999999747378752e-06.
double shortest(float value) {
  const std::string text = fmt::format("{}", value);
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// The value at the front of bytes.
Json take_value(MetaType type, std::span<const std::byte>& bytes) {
  switch (type) {
    case MetaType::kU8: return take<uint8_t>(bytes);
    case MetaType::kI8: return take<int8_t>(bytes);
    case MetaType::kU16: return take<uint16_t>(bytes);
    case MetaType::kI16: return take<int16_t>(bytes);
    case MetaType::kU32: return take<uint32_t>(bytes);
    case MetaType::kI32: return take<int32_t>(bytes);
    case MetaType::kF32: return shortest(take<float>(bytes));
    case MetaType::kBool: return take<uint8_t>(bytes) != 0;
    case MetaType::kU64: return take<uint64_t>(bytes);
    case MetaType::kI64: return take<int64_t>(bytes);
    case MetaType::kF64: return take<double>(bytes);
    case MetaType::kString: {
      const uint64_t claimed = take<uint64_t>(bytes);
      const auto length = static_cast<size_t>(std::min<uint64_t>(claimed, bytes.size()));
      std::string text(reinterpret_cast<const char*>(bytes.data()), length);
      bytes = bytes.subspan(length);
      return text;
    }
    case MetaType::kArray: break;
  }
  bytes = {};
  return nullptr;
}

}  // namespace

std::string metadata_json(const MetaValue& value, uint64_t max_elements) {
  std::span<const std::byte> bytes = value.bytes;
  Json json;
  if (value.is_array()) {
    json = Json::array();
    for (uint64_t i = 0; i < std::min(value.count, max_elements) && !bytes.empty(); ++i) {
      json.push_back(take_value(value.elem_type, bytes));
    }
  } else {
    json = take_value(value.type, bytes);
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera

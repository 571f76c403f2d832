#include "gguf/override.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <utility>

#include "gguf/gguf.h"
#include "gguf/parse.h"

namespace tessera {
namespace {

using Value = decltype(MetadataOverride::value);

constexpr std::array<std::string_view, 4> kKinds = {"int", "float", "bool", "str"};  // by index in Value

Status invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

std::optional<Value> parse_value(std::string_view kind, std::string_view text) {
  if (kind == "int") {
    return parse_number<int64_t>(text);
  }
  if (kind == "float") {
    const auto number = parse_number<double>(text);
    return number && std::isfinite(*number) ? std::optional<Value>(*number) : std::nullopt;
  }
  if (kind == "bool") {
    return text == "true" || text == "false" ? std::optional<Value>(text == "true") : std::nullopt;
  }
  return Value(std::string(text));
}

// The kind of a type's values; empty for arrays.
std::string_view kind_of(MetaType type) {
  switch (type) {
    case MetaType::kF32:
    case MetaType::kF64: return "float";
    case MetaType::kBool: return "bool";
    case MetaType::kString: return "str";
    case MetaType::kArray: return "";
    default: return "int";
  }
}

// What converters write where there is no value yet to go by.
MetaType usual_type(const Value& value) {
  switch (value.index()) {
    case 0: return std::in_range<uint32_t>(std::get<int64_t>(value)) ? MetaType::kU32 : MetaType::kI64;
    case 1: return MetaType::kF32;
    case 2: return MetaType::kBool;
    default: return MetaType::kString;
  }
}

template <typename T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <typename T>
std::optional<std::string> whole_number(int64_t value) {
  return std::in_range<T>(value) ? std::optional(bytes_of(static_cast<T>(value))) : std::nullopt;
}

// The value as a file holds it. Nothing: a value of this type cannot be it.
std::optional<std::string> encode(const Value& value, MetaType type) {
  if (kind_of(type) != kKinds[value.index()]) {
    return std::nullopt;
  }
  const auto whole = [&] { return std::get<int64_t>(value); };
  switch (type) {
    case MetaType::kU8: return whole_number<uint8_t>(whole());
    case MetaType::kI8: return whole_number<int8_t>(whole());
    case MetaType::kU16: return whole_number<uint16_t>(whole());
    case MetaType::kI16: return whole_number<int16_t>(whole());
    case MetaType::kU32: return whole_number<uint32_t>(whole());
    case MetaType::kI32: return whole_number<int32_t>(whole());
    case MetaType::kU64: return whole_number<uint64_t>(whole());
    case MetaType::kI64: return whole_number<int64_t>(whole());
    case MetaType::kBool: return bytes_of(static_cast<uint8_t>(std::get<bool>(value)));
    case MetaType::kF64: return bytes_of(std::get<double>(value));
    case MetaType::kF32: {
      const double number = std::get<double>(value);
      const bool fits = std::abs(number) <= static_cast<double>(std::numeric_limits<float>::max());
      return fits ? std::optional(bytes_of(static_cast<float>(number))) : std::nullopt;
    }
    case MetaType::kString: {
      const auto& text = std::get<std::string>(value);
      return bytes_of(uint64_t{text.size()}) + text;
    }
    case MetaType::kArray: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

Result<MetadataOverride> parse_override(std::string_view text) {
  const size_t equals = text.find('=');
  const size_t colon = text.find(':', equals);
  if (equals == 0 || colon == std::string_view::npos) {  // there is no colon behind an equals sign that is missing
    return invalid("wanted KEY=TYPE:VALUE, such as llama.rope.freq_base=float:500000");
  }
  const std::string_view kind = text.substr(equals + 1, colon - equals - 1);
  const std::string_view given = text.substr(colon + 1);
  if (std::ranges::find(kKinds, kind) == kKinds.end()) {
    return invalid(fmt::format("{} is none of the types int, float, bool, str", quoted(kind)));
  }
  const std::optional<Value> value = parse_value(kind, given);
  if (!value) {
    return invalid(fmt::format("{} is no {}", quoted(given),
                               kind == "int"     ? "whole number of 64 bits"
                               : kind == "float" ? "finite number"
                                                 : "bool: write true or false"));
  }
  return MetadataOverride{std::string(text.substr(0, equals)), *value};
}

Status GgufFile::override_value(const MetadataOverride& given) {
  std::string key = given.key;
  if (key.starts_with('.')) {
    ASSIGN_OR_RETURN(const std::string_view architecture, metadata_.get_string("general.architecture"));
    key.insert(0, architecture);
  }
  if (key == "general.alignment" || key.starts_with("split.")) {
    return invalid(fmt::format("the key {} says how the file is laid out, which stays as it is", quoted(key)));
  }
  const MetaValue* old = metadata_.find(key);
  const MetaType type = old != nullptr ? old->type : usual_type(given.value);
  const std::optional<std::string> bytes = encode(given.value, type);
  if (!bytes) {
    const std::string_view wanted = kind_of(type);
    return invalid(fmt::format("the key {} {}{}", quoted(key),
                               old != nullptr ? fmt::format("is {} in the file", old->type_text())
                                              : fmt::format("is new, as {}", meta_type_name(type)),
                               wanted.empty()                          ? ", which cannot be overridden"
                               : wanted == kKinds[given.value.index()] ? ", whose range has no such number"
                                                                       : fmt::format("; write {}:VALUE", wanted)));
  }
  MetaValue entry;
  entry.type = entry.elem_type = type;
  entry.n_bytes = bytes->size();
  entry.bytes = std::as_bytes(std::span(overrides_.emplace_back(*bytes)));
  std::vector<MetaValue> entries(metadata_.entries().begin(), metadata_.entries().end());
  if (old != nullptr) {
    entry.key = old->key;
    entries[static_cast<size_t>(old - metadata_.entries().data())] = entry;
  } else {
    entry.key = overrides_.emplace_back(std::move(key));
    entries.push_back(entry);
  }
  metadata_ = Metadata(std::move(entries));
  return {};
}

}  // namespace tessera

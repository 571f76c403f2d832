// Attribute, item and slice access (the second half of operators.h).

#include <algorithm>

#include "fmt/format.h"

#include "tokenizer/template/format.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/unicode.h"

namespace tessera::jinja {
namespace {

std::string object_type(const Value& object) {
  return object.is(Kind::kNone) ? "None" : fmt::format("{} object", type_name(object));
}

Result<Value> missing(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) {
    if (!runtime.options().chain_undefined) {
      return type_error(object.undefined_message());
    }
    return object;
  }
  Text printed;
  TRY(append_repr(runtime, key, printed));
  return key.is(Kind::kString)
             ? Value::undefined(fmt::format("'{}' has no attribute {}", object_type(object), printed.bytes()))
             : Value::undefined(fmt::format("{} has no element {}", object_type(object), printed.bytes()));
}

/// `object[key]` as Python has it; nullopt where Python raises a LookupError or TypeError.
Result<std::optional<Value>> subscript(Runtime& runtime, const Value& object, const Value& key) {
  std::optional<Value> result;
  if (object.is(Kind::kDict) || object.is(Kind::kNamespace)) {
    if (object.is(Kind::kNamespace)) {
      return result;
    }
    Result<std::string> id = hash_key(key);
    if (id.ok()) {
      const Value* found = object.dict().find(*id);
      if (found != nullptr) {
        result = *found;
      }
    }
    return result;
  }
  if (!key.is_integral()) {
    return result;
  }
  int64_t index = key.as_int();
  if (object.is(Kind::kString)) {
    const Text& text = object.text();
    TRY(runtime.charge_scan(text.size()));
    const auto n = static_cast<int64_t>(count_code_points(text.view()));
    index += index < 0 ? n : 0;
    if (index >= 0 && index < n) {
      const size_t begin = offset_of(text.view(), static_cast<size_t>(index));
      uint32_t c = 0;
      ASSIGN_OR_RETURN(result, runtime.string(text.slice(begin, begin + decode(text.view(), begin, &c))));
    }
  } else if (object.is_sequence() || object.is(Kind::kRange)) {
    const int64_t n = object.is(Kind::kRange) ? object.range().size() : static_cast<int64_t>(object.items().size());
    index += index < 0 ? n : 0;
    if (index >= 0 && index < n) {
      result = object.is(Kind::kRange) ? object.range().at(index) : object.items()[static_cast<size_t>(index)];
    }
  }
  return result;
}

std::optional<Value> loop_attribute(const Value& object, std::string_view name) {
  const LoopObject& loop = object.loop();
  const auto n = static_cast<int64_t>(loop.items.size());
  const auto index0 = static_cast<int64_t>(loop.index0);
  const auto number = [](int64_t i) { return std::optional<Value>(Value::integer(i)); };
  if (name == "index") {
    return number(index0 + 1);
  }
  if (name == "index0") {
    return number(index0);
  }
  if (name == "revindex") {
    return number(n - index0);
  }
  if (name == "revindex0") {
    return number(n - index0 - 1);
  }
  if (name == "length") {
    return number(n);
  }
  if (name == "depth") {
    return number(static_cast<int64_t>(loop.depth0) + 1);
  }
  if (name == "depth0") {
    return number(static_cast<int64_t>(loop.depth0));
  }
  if (name == "first") {
    return std::optional<Value>(Value::boolean(index0 == 0));
  }
  if (name == "last") {
    return std::optional<Value>(Value::boolean(index0 + 1 == n));
  }
  if (name == "previtem") {
    return std::optional<Value>(index0 > 0 ? loop.items[static_cast<size_t>(index0 - 1)]
                                           : Value::undefined("there is no previous item"));
  }
  if (name == "nextitem") {
    return std::optional<Value>(index0 + 1 < n ? loop.items[static_cast<size_t>(index0 + 1)]
                                               : Value::undefined("there is no next item"));
  }
  return std::nullopt;
}

/// `object.name` without falling back to items; nullopt when there is no such attribute.
Result<std::optional<Value>> attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.is(Kind::kNamespace)) {
    const Value* found = object.dict().find_text(name);
    return found != nullptr ? std::optional<Value>(*found) : std::optional<Value>();
  }
  if (object.is(Kind::kLoop)) {
    std::optional<Value> found = loop_attribute(object, name);
    if (found.has_value()) {
      return found;
    }
  }
  if (object.is(Kind::kTuple) && object.list().view_name == "group" && (name == "grouper" || name == "list")) {
    return std::optional<Value>(object.items()[name == "list" ? 1 : 0]);
  }
  if (object.is(Kind::kCallable) && name == "name" && object.callable().function == nullptr) {
    ASSIGN_OR_RETURN(Value macro_name, runtime.string(object.callable().name));
    return std::optional<Value>(std::move(macro_name));
  }
  const Function method = find_method(object, name);
  if (method == nullptr) {
    return std::optional<Value>();
  }
  const std::string description = fmt::format("<built-in method {} of {} object>", name, type_name(object));
  ASSIGN_OR_RETURN(Value bound, runtime.function(name, description, method, object));
  return std::optional<Value>(std::move(bound));
}

struct SliceBounds {
  int64_t start;
  int64_t stop;
  int64_t step;
};

Result<SliceBounds> slice_bounds(int64_t n, const Value& start, const Value& stop, const Value& step) {
  for (const Value* part : {&start, &stop, &step}) {
    if (!part->is(Kind::kNone) && !part->is_integral()) {
      return type_error("slice indices must be integers or None or have an __index__ method");
    }
  }
  // A step beyond the length picks one element at most; clamping keeps sums of positions far from overflow.
  const int64_t by = step.is(Kind::kNone) ? 1 : std::clamp<int64_t>(step.as_int(), -n - 1, n + 1);
  if (by == 0) {
    return type_error("slice step cannot be zero");
  }
  const int64_t lowest = by < 0 ? -1 : 0;
  const int64_t highest = by < 0 ? n - 1 : n;
  const auto clip = [&](const Value& part, int64_t otherwise) {
    if (part.is(Kind::kNone)) {
      return otherwise;
    }
    const int64_t i = part.as_int();
    return i < 0 ? std::max(i < -n ? lowest : i + n, lowest) : std::min(i, highest);
  };
  return SliceBounds{clip(start, by < 0 ? highest : lowest), clip(stop, by < 0 ? lowest : highest), by};
}

}  // namespace

Result<Value> get_item(Runtime& runtime, const Value& object, const Value& key) {
  ASSIGN_OR_RETURN(std::optional<Value> item, subscript(runtime, object, key));
  if (!item.has_value() && key.is(Kind::kString)) {
    ASSIGN_OR_RETURN(item, attribute(runtime, object, key.text().view()));
  }
  return item.has_value() ? Result<Value>(*std::move(item)) : missing(runtime, object, key);
}

Result<Value> get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  ASSIGN_OR_RETURN(std::optional<Value> found, attribute(runtime, object, name));
  if (found.has_value()) {
    return *std::move(found);
  }
  if (object.is(Kind::kDict)) {
    const Value* item = object.dict().find_text(name);
    if (item != nullptr) {
      return *item;
    }
  }
  ASSIGN_OR_RETURN(const Value key, runtime.string(std::string(name)));
  return missing(runtime, object, key);
}

Result<Value> get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                        const Value& step) {
  const bool sliceable = object.is(Kind::kString) || object.is_sequence() || object.is(Kind::kRange);
  if (object.is(Kind::kUndefined)) {
    return missing(runtime, object, Value::none());
  }
  if (object.is(Kind::kDict)) {
    return type_error("unhashable type: 'slice'");
  }
  if (!sliceable) {
    return type_error(fmt::format("'{}' object is not subscriptable", type_name(object)));
  }
  ASSIGN_OR_RETURN(const int64_t n, runtime.length(object));
  ASSIGN_OR_RETURN(const SliceBounds bounds, slice_bounds(n, start, stop, step));
  RangeObject positions;
  positions.start = bounds.start;
  positions.stop = bounds.stop;
  positions.step = bounds.step;
  const int64_t count = positions.size();
  if (object.is(Kind::kString)) {
    const Text& text = object.text();
    TRY(runtime.charge_scan(text.size()));
    if (bounds.step == 1) {
      const size_t begin = offset_of(text.view(), static_cast<size_t>(bounds.start));
      const size_t length = offset_of(text.view().substr(begin), static_cast<size_t>(count));
      return runtime.string(text.slice(begin, begin + length));
    }
    std::vector<size_t> offsets;
    uint32_t c = 0;
    for (size_t pos = 0; pos < text.size(); pos += decode(text.view(), pos, &c)) {
      offsets.push_back(pos);
    }
    offsets.push_back(text.size());
    Text result;
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(bounds.start + i * bounds.step);
      result.append(text, offsets[at], offsets[at + 1]);
    }
    return runtime.string(std::move(result));
  }
  if (object.is(Kind::kRange)) {
    auto range = std::make_shared<RangeObject>();
    const RangeObject& old = object.range();
    range->step = old.step * bounds.step;  // no overflow: range() bounds its numbers, slice_bounds the step
    range->start = old.start + bounds.start * old.step;
    range->stop = old.start + bounds.stop * old.step;
    return Value(Kind::kRange, std::move(range), object.from_user());
  }
  TRY(runtime.charge_scan(static_cast<size_t>(count)));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    items.push_back(object.items()[static_cast<size_t>(bounds.start + i * bounds.step)]);
  }
  return object.is(Kind::kList) ? runtime.list(std::move(items), object.from_user())
                                : runtime.tuple(std::move(items), object.from_user());
}

}  // namespace tessera::jinja

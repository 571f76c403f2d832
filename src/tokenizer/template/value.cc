#include "tokenizer/template/value.h"

#include <cmath>

#include "fmt/format.h"

namespace tessera::jinja {

Value Value::undefined(std::string message) {
  return {Kind::kUndefined, std::make_shared<TextObject>(Text(std::move(message), false))};
}

Value Value::boolean(bool b, bool from_user) {
  Value value(Kind::kBool, from_user);
  value.bool_ = b;
  return value;
}

Value Value::integer(int64_t i, bool from_user) {
  Value value(Kind::kInt, from_user);
  value.int_ = i;
  return value;
}

Value Value::real(double d, bool from_user) {
  Value value(Kind::kFloat, from_user);
  value.real_ = d;
  return value;
}

bool Value::from_user() const {
  return is(Kind::kString) ? text().any_from_user() : from_user_;
}
const Text& Value::text() const {
  return static_cast<TextObject&>(*object_).text;
}
ListObject& Value::list() const {
  return static_cast<ListObject&>(*object_);
}
const std::vector<Value>& Value::items() const {
  return list().items;
}
DictObject& Value::dict() const {
  return static_cast<DictObject&>(*object_);
}
RangeObject& Value::range() const {
  return static_cast<RangeObject&>(*object_);
}
IteratorObject& Value::iterator() const {
  return static_cast<IteratorObject&>(*object_);
}
LoopObject& Value::loop() const {
  return static_cast<LoopObject&>(*object_);
}
CallableObject& Value::callable() const {
  return static_cast<CallableObject&>(*object_);
}

std::string Value::undefined_message() const {
  return object_ ? static_cast<TextObject&>(*object_).text.bytes() : "value is undefined";
}

uint32_t Value::depth() const {
  return object_ ? object_->depth : 0;
}

const Value* DictObject::find(const std::string& key_id) const {
  const auto it = index.find(key_id);
  return it == index.end() ? nullptr : &entries[it->second].second;
}

const Value* DictObject::find_text(std::string_view key) const {
  return find(hash_key_of_text(key));
}

void DictObject::set(std::string key_id, Value key, Value value) {
  const auto [it, added] = index.emplace(std::move(key_id), entries.size());
  if (added) {
    entries.emplace_back(std::move(key), std::move(value));
  } else {
    entries[it->second].second = std::move(value);
  }
}

int64_t RangeObject::size() const {
  if (step > 0) {
    return start < stop ? (stop - start - 1) / step + 1 : 0;
  }
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

void ListObject::drop(std::vector<Value>& out) {
  for (Value& item : items) {
    out.push_back(std::move(item));
  }
  items.clear();
}

void DictObject::drop(std::vector<Value>& out) {
  for (auto& [key, value] : entries) {
    out.push_back(std::move(key));
    out.push_back(std::move(value));
  }
  entries.clear();
  index.clear();
}

void LoopObject::drop(std::vector<Value>& out) {
  for (Value& item : items) {
    out.push_back(std::move(item));
  }
  items.clear();
  for (Value& item : last_changed) {
    out.push_back(std::move(item));
  }
  last_changed.clear();
  closure_scope.reset();
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kRange: return "range";
    case Kind::kView: return value.list().view_name;
    case Kind::kIterator: return "generator";
    case Kind::kNamespace: return "Namespace";
    case Kind::kLoop: return "LoopContext";
    case Kind::kCallable: return "function";
  }
  return "object";
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return value.as_int() != 0;
    case Kind::kFloat: return value.as_real() != 0.0;
    case Kind::kString: return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView: return !value.items().empty();
    case Kind::kDict: return !value.dict().entries.empty();
    case Kind::kRange: return value.range().size() > 0;
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable: return true;
  }
  return true;
}

std::string hash_key_of_text(std::string_view text) {
  return std::string("s").append(text);
}

Result<std::string> hash_key(const Value& value) {
  switch (value.kind()) {
    case Kind::kString: return hash_key_of_text(value.text().view());
    case Kind::kNone: return std::string("none");
    case Kind::kUndefined: return std::string("undefined");
    case Kind::kBool:
    case Kind::kInt: return fmt::format("i{}", value.as_int());
    case Kind::kFloat: {
      const double d = value.as_real();
      const bool whole = std::trunc(d) == d && std::fabs(d) < 9.2e18;
      return whole ? fmt::format("i{}", static_cast<int64_t>(d)) : fmt::format("f{}", d);
    }
    case Kind::kTuple: {
      std::string key = "t";
      for (const Value& item : value.items()) {
        ASSIGN_OR_RETURN(const std::string part, hash_key(item));
        key += fmt::format("{}:{}", part.size(), part);
        if (key.size() > (1U << 20U)) {  // tuples of shared tuples could grow without bound
          return Status(ErrorCode::kUnsupported, "a tuple used as a key exceeds the limit of 1 MiB");
        }
      }
      return key;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
      return Status(ErrorCode::kInvalidArgument, fmt::format("unhashable type: '{}'", type_name(value)));
    default: return fmt::format("o{}", fmt::ptr(value.object().get()));
  }
}

}  // namespace tessera::jinja

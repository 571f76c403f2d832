#include "tokenizer/template/runtime.h"

#include <algorithm>

#include "fmt/format.h"

#include "tokenizer/template/library.h"
#include "tokenizer/template/unicode.h"

namespace tessera::jinja {
namespace {

constexpr size_t kObjectOverhead = 48;  // the allocator's and the shared pointer's own bytes, about

}  // namespace

Status type_error(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

Status limit_error(std::string_view what, size_t limit) {
  return {ErrorCode::kUnsupported, fmt::format("the template exceeds the limit of {} {}", limit, what)};
}

Runtime::~Runtime() {
  // What the mutable objects hold is gathered first and destroyed afterwards: whatever dies then finds every chain
  // through a mutable object already cut, so destruction nests no deeper than immutable containers do.
  std::vector<Value> dropped;
  for (const auto& object : kept_) {
    object->drop(dropped);
  }
}

Status Runtime::charge_steps(size_t n) {
  steps_ += n;
  return steps_ > limits().max_steps ? limit_error("evaluation steps", limits().max_steps) : Status();
}

Status Runtime::charge_bytes(size_t n) {
  if (n > limits().max_made_bytes || made_bytes_ > limits().max_made_bytes - n) {
    return limit_error("bytes of values made", limits().max_made_bytes);
  }
  made_bytes_ += n;
  return charge_scan(n);
}

Result<Value> Runtime::string(Text text) {
  TRY(charge_bytes(text.size() + sizeof(TextObject) + kObjectOverhead));
  return Value(Kind::kString, std::make_shared<TextObject>(std::move(text)));
}

Result<Value> Runtime::sequence(Kind kind, std::vector<Value> items, bool from_user, std::string_view view_name) {
  TRY(charge_bytes(items.size() * sizeof(Value) + sizeof(ListObject) + kObjectOverhead));
  auto object = std::make_shared<ListObject>();
  for (const Value& item : items) {
    object->depth = std::max(object->depth, item.depth() + 1);
  }
  if (object->depth > limits().max_containers) {
    return limit_error("containers within containers", limits().max_containers);
  }
  object->items = std::move(items);
  object->view_name = view_name;
  return Value(kind, std::move(object), from_user);
}

Result<Value> Runtime::list(std::vector<Value> items, bool from_user) {
  return sequence(Kind::kList, std::move(items), from_user, {});
}

Result<Value> Runtime::tuple(std::vector<Value> items, bool from_user) {
  return sequence(Kind::kTuple, std::move(items), from_user, {});
}

Result<Value> Runtime::view(std::string_view type_name, std::vector<Value> items, bool from_user) {
  return sequence(Kind::kView, std::move(items), from_user, type_name);
}

Result<Value> Runtime::iterator(std::vector<Value> items, bool from_user) {
  TRY(charge_bytes(items.size() * sizeof(Value) + sizeof(IteratorObject) + kObjectOverhead));
  auto object = std::make_shared<IteratorObject>();
  for (const Value& item : items) {
    object->depth = std::max(object->depth, item.depth() + 1);
  }
  if (object->depth > limits().max_containers) {
    return limit_error("containers within containers", limits().max_containers);
  }
  object->items = std::move(items);
  return Value(Kind::kIterator, std::move(object), from_user);
}

Result<Value> Runtime::dict(std::vector<std::pair<Value, Value>> entries, bool from_user) {
  TRY(charge_bytes(entries.size() * (2 * sizeof(Value) + 96) + sizeof(DictObject)));
  auto object = std::make_shared<DictObject>();
  for (auto& [key, value] : entries) {
    object->depth = std::max({object->depth, key.depth() + 1, value.depth() + 1});
    ASSIGN_OR_RETURN(std::string id, hash_key(key));
    TRY(charge_bytes(id.size()));
    object->set(std::move(id), std::move(key), std::move(value));
  }
  if (object->depth > limits().max_containers) {
    return limit_error("containers within containers", limits().max_containers);
  }
  return Value(Kind::kDict, std::move(object), from_user);
}

Result<Value> Runtime::function(std::string_view name, std::string_view description, Function f, Value self) {
  TRY(charge_bytes(sizeof(CallableObject) + name.size() + description.size()));
  auto object = std::make_shared<CallableObject>();
  object->name = name;
  object->description = description;
  object->function = f;
  object->depth = self.depth() + 1;
  if (object->depth > limits().max_containers) {
    return limit_error("containers within containers", limits().max_containers);
  }
  object->self = std::move(self);
  return Value(Kind::kCallable, std::move(object));
}

Result<std::vector<Value>> Runtime::elements(const Value& iterable) {
  std::vector<Value> items;
  switch (iterable.kind()) {
    case Kind::kUndefined: return items;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView: TRY(charge_scan(iterable.items().size())); return iterable.items();
    case Kind::kDict:
      TRY(charge_scan(iterable.dict().entries.size()));
      for (const auto& entry : iterable.dict().entries) {
        items.push_back(entry.first);
      }
      return items;
    case Kind::kRange: {
      const int64_t n = iterable.range().size();
      TRY(charge_scan(static_cast<size_t>(n)));
      for (int64_t i = 0; i < n; ++i) {
        items.push_back(iterable.range().at(i));
      }
      return items;
    }
    case Kind::kString: {
      const Text& text = iterable.text();
      uint32_t c = 0;
      for (size_t pos = 0; pos < text.size();) {
        const size_t length = decode(text.view(), pos, &c);
        ASSIGN_OR_RETURN(Value character, string(text.slice(pos, pos + length)));
        items.push_back(std::move(character));
        pos += length;
      }
      return items;
    }
    case Kind::kIterator: {
      IteratorObject& it = iterable.iterator();
      TRY(charge_scan(it.items.size()));
      items.assign(it.items.begin() + static_cast<std::ptrdiff_t>(it.next), it.items.end());
      it.next = it.items.size();
      return items;
    }
    case Kind::kLoop: {
      LoopObject& loop = iterable.loop();
      TRY(charge_scan(loop.items.size()));
      items.assign(loop.items.begin() + static_cast<std::ptrdiff_t>(std::min(loop.index0 + 1, loop.items.size())),
                   loop.items.end());
      return items;
    }
    default: return type_error(fmt::format("'{}' object is not iterable", type_name(iterable)));
  }
}

Result<int64_t> Runtime::length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return int64_t{0};
    case Kind::kString:
      TRY(charge_scan(value.text().size()));
      return static_cast<int64_t>(count_code_points(value.text().view()));
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView: return static_cast<int64_t>(value.items().size());
    case Kind::kDict: return static_cast<int64_t>(value.dict().entries.size());
    case Kind::kRange: return value.range().size();
    case Kind::kLoop: return static_cast<int64_t>(value.loop().items.size());
    default: return type_error(fmt::format("object of type '{}' has no len()", type_name(value)));
  }
}

Result<Value> Runtime::call_filter(std::string_view name, const Value& self, const CallArgs& args) {
  const Function filter = find_filter(name);
  if (filter == nullptr) {
    return type_error(fmt::format("No filter named '{}'.", name));
  }
  TRY(charge_steps(1));
  return filter(*this, self, args);
}

Result<bool> Runtime::call_test(std::string_view name, const Value& self, const CallArgs& args) {
  const Function test = find_test(name);
  if (test == nullptr) {
    return type_error(fmt::format("No test named '{}'.", name));
  }
  TRY(charge_steps(1));
  ASSIGN_OR_RETURN(const Value result, test(*this, self, args));
  return is_true(result);
}

Result<Bound> Bound::bind(std::string_view function, const CallArgs& args,
                          std::initializer_list<std::string_view> names, size_t n_required) {
  Bound bound;
  bound.values_.resize(names.size());
  if (args.positional.size() > names.size()) {
    return type_error(
        fmt::format("{}() takes at most {} arguments ({} given)", function, names.size(), args.positional.size()));
  }
  std::copy(args.positional.begin(), args.positional.end(), bound.values_.begin());
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) {
      return type_error(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    }
    auto& slot = bound.values_[static_cast<size_t>(it - names.begin())];
    if (slot.has_value()) {
      return type_error(fmt::format("{}() got multiple values for argument '{}'", function, name));
    }
    slot = value;
  }
  for (size_t i = 0; i < n_required; ++i) {
    if (!bound.has(i)) {
      return type_error(fmt::format("{}() missing required argument '{}'", function, names.begin()[i]));
    }
  }
  return bound;
}

Result<int64_t> Bound::integer(size_t i, int64_t missing) const {
  if (!has(i)) {
    return missing;
  }
  if (!(*this)[i].is_integral()) {
    return type_error(fmt::format("'{}' object cannot be interpreted as an integer", type_name((*this)[i])));
  }
  return (*this)[i].as_int();
}

Result<const Text*> Bound::text(size_t i) const {
  if (!(*this)[i].is(Kind::kString)) {
    return type_error(fmt::format("expected str instance, {} found", type_name((*this)[i])));
  }
  return &(*this)[i].text();
}

}  // namespace tessera::jinja

// Methods of lists, tuples, dicts, ranges and loops, and the lookup of library functions by name.

#include <algorithm>
#include <unordered_map>

#include "fmt/format.h"

#include "tokenizer/template/library.h"
#include "tokenizer/template/operators.h"

namespace tessera::jinja {
namespace {

// Lists, tuples and ranges alike.
int64_t n_items(const Value& self) {
  return self.is(Kind::kRange) ? self.range().size() : static_cast<int64_t>(self.items().size());
}

Value item_at(const Value& self, int64_t i) {
  return self.is(Kind::kRange) ? self.range().at(i) : self.items()[static_cast<size_t>(i)];
}

Result<Value> sequence_count(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("count", args, {"value"}, 1));
  int64_t count = 0;
  for (int64_t i = 0; i < n_items(self); ++i) {
    ASSIGN_OR_RETURN(const bool same, equal(runtime, item_at(self, i), bound[0]));
    count += same ? 1 : 0;
  }
  return Value::integer(count);
}

Result<Value> sequence_index(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("index", args, {"value"}, 1));
  for (int64_t i = 0; i < n_items(self); ++i) {
    ASSIGN_OR_RETURN(const bool same, equal(runtime, item_at(self, i), bound[0]));
    if (same) {
      return Value::integer(i);
    }
  }
  return type_error("value is not in the sequence");
}

Result<Value> list_copy(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("copy", args, {}).status());
  return runtime.list(self.items(), self.from_user());
}

Result<Value> list_append(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("append", args, {"value"}, 1));
  ListObject& list = self.list();
  TRY(runtime.charge_bytes(2 * sizeof(Value)));
  list.depth = std::max(list.depth, bound[0].depth() + 1);
  if (list.depth > runtime.limits().max_containers) {
    return limit_error("containers within containers", runtime.limits().max_containers);
  }
  runtime.keep(self.object());  // it may now be part of a cycle
  list.items.push_back(bound[0]);
  return Value::none();
}

Result<Value> list_pop(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("pop", args, {"index"}));
  std::vector<Value>& items = self.list().items;
  const auto n = static_cast<int64_t>(items.size());
  ASSIGN_OR_RETURN(int64_t index, bound.integer(0, -1));
  index += index < 0 ? n : 0;
  if (index < 0 || index >= n) {
    return type_error(n == 0 ? "pop from empty list" : "pop index out of range");
  }
  TRY(runtime.charge_scan(items.size()));
  Value popped = items[static_cast<size_t>(index)];
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(index));
  return popped;
}

Result<Value> dict_get(Runtime& /*runtime*/, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("get", args, {"key", "default"}, 1));
  ASSIGN_OR_RETURN(const std::string id, hash_key(bound[0]));
  const Value* found = self.dict().find(id);
  return found != nullptr ? *found : bound.has(1) ? bound[1] : Value::none();
}

Result<Value> dict_items(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("items", args, {}).status());
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries) {
    ASSIGN_OR_RETURN(Value item, runtime.tuple({key, value}, self.from_user()));
    items.push_back(std::move(item));
  }
  return runtime.view("dict_items", std::move(items), self.from_user());
}

Result<Value> dict_keys(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("keys", args, {}).status());
  ASSIGN_OR_RETURN(std::vector<Value> keys, runtime.elements(self));
  return runtime.view("dict_keys", std::move(keys), self.from_user());
}

Result<Value> dict_values(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("values", args, {}).status());
  std::vector<Value> values;
  for (const auto& entry : self.dict().entries) {
    values.push_back(entry.second);
  }
  return runtime.view("dict_values", std::move(values), self.from_user());
}

Result<Value> dict_copy(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("copy", args, {}).status());
  return runtime.dict(self.dict().entries, self.from_user());
}

Result<Value> loop_cycle(Runtime& /*runtime*/, const Value& self, const CallArgs& args) {
  if (args.positional.empty()) {
    return type_error("no items for cycling given");
  }
  return args.positional[self.loop().index0 % args.positional.size()];
}

Result<Value> loop_changed(Runtime& runtime, const Value& self, const CallArgs& args) {
  LoopObject& loop = self.loop();
  bool same = loop.has_changed && loop.last_changed.size() == args.positional.size();
  for (size_t i = 0; same && i < args.positional.size(); ++i) {
    ASSIGN_OR_RETURN(same, equal(runtime, loop.last_changed[i], args.positional[i]));
  }
  if (!same) {
    TRY(runtime.charge_bytes((args.positional.size() + 1) * sizeof(Value)));
    runtime.keep(self.object());  // it may now be part of a cycle
    loop.last_changed = args.positional;
    loop.has_changed = true;
  }
  return Value::boolean(!same);
}

Function find_in(std::initializer_list<LibraryEntry> table, std::string_view name) {
  const auto* it = std::find_if(table.begin(), table.end(), [&](const LibraryEntry& e) { return e.name == name; });
  return it == table.end() ? nullptr : it->function;
}

using Table = std::unordered_map<std::string_view, Function>;

Table make_table(std::initializer_list<const LibraryEntry*> lists) {
  Table table;
  for (const LibraryEntry* entry : lists) {
    for (; entry->function != nullptr; ++entry) {
      table.emplace(entry->name, entry->function);
    }
  }
  return table;
}

Function find_in(const Table& table, std::string_view name) {
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

// What the reference server's lists can do and jinja2's sandbox forbids; looked up only through a list that allows it.
Result<Value> list_append_checked(Runtime& runtime, const Value& self, const CallArgs& args) {
  return runtime.options().mutable_lists ? list_append(runtime, self, args)
                                         : type_error("access to attribute 'append' of 'list' object is unsafe.");
}

Result<Value> list_pop_checked(Runtime& runtime, const Value& self, const CallArgs& args) {
  return runtime.options().mutable_lists ? list_pop(runtime, self, args)
                                         : type_error("access to attribute 'pop' of 'list' object is unsafe.");
}

}  // namespace

Function find_filter(std::string_view name) {
  static const Table table = make_table({kTextFilters, kSequenceFilters, kSelectionFilters, kValueFilters});
  return find_in(table, name);
}

Function find_test(std::string_view name) {
  static const Table table = make_table({kTests});
  return find_in(table, name);
}

Function find_global(std::string_view name) {
  static const Table table = make_table({kGlobals});
  return find_in(table, name);
}

Function find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kString: {
      static const Table table = make_table({kTextMethods});
      return find_in(table, name);
    }
    case Kind::kList:
      return find_in({{"append", list_append_checked},
                      {"copy", list_copy},
                      {"count", sequence_count},
                      {"index", sequence_index},
                      {"pop", list_pop_checked}},
                     name);
    case Kind::kRange:
    case Kind::kTuple: return find_in({{"count", sequence_count}, {"index", sequence_index}}, name);
    case Kind::kDict:
      return find_in(
          {{"copy", dict_copy}, {"get", dict_get}, {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}},
          name);
    case Kind::kLoop: return find_in({{"changed", loop_changed}, {"cycle", loop_cycle}}, name);
    default: return nullptr;
  }
}

}  // namespace tessera::jinja

// Filters on sequences and mappings.

#include <algorithm>
#include <unordered_set>

#include "fmt/format.h"

#include "tokenizer/template/library.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/text_operations.h"

namespace tessera::jinja {
namespace {

Result<Value> filter_length(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("length", args, {}).status());
  ASSIGN_OR_RETURN(const int64_t n, runtime.length(self));
  return Value::integer(n);
}

Result<Value> filter_list(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("list", args, {}).status());
  ASSIGN_OR_RETURN(std::vector<Value> items, runtime.elements(self));
  return runtime.list(std::move(items), self.from_user());
}

Result<Value> filter_first(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("first", args, {}).status());
  if (self.is(Kind::kIterator)) {  // takes one, leaves the rest
    IteratorObject& it = self.iterator();
    return it.next < it.items.size() ? it.items[it.next++] : Value::undefined("No first item, sequence was empty.");
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.elements(self));
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Result<Value> filter_last(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("last", args, {}).status());
  if (self.is(Kind::kIterator)) {
    return type_error("'generator' object is not reversible");
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.elements(self));
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Result<Value> filter_reverse(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("reverse", args, {}).status());
  if (self.is(Kind::kString)) {
    return get_slice(runtime, self, Value::none(), Value::none(), Value::integer(-1));
  }
  ASSIGN_OR_RETURN(std::vector<Value> items, runtime.elements(self));
  std::reverse(items.begin(), items.end());
  return self.is(Kind::kIterator) ? runtime.list(std::move(items), self.from_user())
                                  : runtime.iterator(std::move(items), self.from_user());
}

/// The values that sorting and grouping compare, one per item.
Result<std::vector<Value>> sort_keys(Runtime& runtime, const std::vector<Value>& items, const Value& path,
                                     bool case_sensitive, const Value* missing = nullptr) {
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key, follow_path(runtime, item, path, missing));
    if (!case_sensitive) {
      ASSIGN_OR_RETURN(key, ignore_case(runtime, key));
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

Result<std::vector<Value>> reorder(const std::vector<Value>& items, const std::vector<size_t>& order) {
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) {
    sorted.push_back(items[i]);
  }
  return sorted;
}

Result<Value> filter_sort(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("sort", args, {"reverse", "case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.elements(self));
  std::vector<Value> paths = {bound.has(2) ? bound[2] : Value::none()};
  if (paths[0].is(Kind::kString)) {  // "a,b" sorts by a, then b
    const Text comma(",", false);
    ASSIGN_OR_RETURN(const Value parts, list_of_texts(runtime, split(paths[0].text(), &comma, -1, false), false));
    paths = parts.items();
  }
  std::vector<Value> keys;  // lists, also of one part: equal parts then need no order
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const Value& path : paths) {
      ASSIGN_OR_RETURN(const std::vector<Value> key, sort_keys(runtime, {item}, path, bound.flag(1, false)));
      parts.push_back(key[0]);
    }
    ASSIGN_OR_RETURN(Value key, runtime.list(std::move(parts)));
    keys.push_back(std::move(key));
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> order, sort_order(runtime, keys, bound.flag(0, false)));
  ASSIGN_OR_RETURN(std::vector<Value> sorted, reorder(items, order));
  return runtime.list(std::move(sorted), self.from_user());
}

Result<Value> filter_unique(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("unique", args, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.elements(self));
  ASSIGN_OR_RETURN(const std::vector<Value> keys,
                   sort_keys(runtime, items, bound.has(1) ? bound[1] : Value::none(), bound.flag(0, false)));
  std::unordered_set<std::string> seen;
  std::vector<Value> kept;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(std::string id, hash_key(keys[i]));
    TRY(runtime.charge_bytes(id.size()));
    if (seen.insert(std::move(id)).second) {
      kept.push_back(items[i]);
    }
  }
  return runtime.iterator(std::move(kept), self.from_user());
}

template <bool largest>
Result<Value> filter_extreme(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("min or max", args, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.elements(self));
  if (items.empty()) {
    return Value::undefined("No aggregated item, sequence was empty.");
  }
  ASSIGN_OR_RETURN(const std::vector<Value> keys,
                   sort_keys(runtime, items, bound.has(1) ? bound[1] : Value::none(), bound.flag(0, false)));
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const bool better,
                     compare(runtime, largest ? CompareOp::kGreater : CompareOp::kLess, keys[i], keys[best]));
    best = better ? i : best;
  }
  return items[best];
}

Result<Value> filter_sum(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("sum", args, {"attribute", "start"}));
  ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.elements(self));
  const Value path = bound.has(0) ? bound[0] : Value::none();
  Value sum = bound.has(1) ? bound[1] : Value::integer(0);
  if (sum.is(Kind::kString)) {
    return type_error("sum() can't sum strings [use ''.join(seq) instead]");
  }
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value part, follow_path(runtime, item, path, nullptr));
    ASSIGN_OR_RETURN(sum, binary(runtime, BinaryOp::kAdd, sum, part));
  }
  return sum;
}

Result<Value> filter_items(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("items", args, {}).status());
  if (self.is(Kind::kUndefined)) {
    return runtime.iterator({});
  }
  if (!self.is(Kind::kDict)) {
    return type_error("Can only get item pairs from a mapping.");
  }
  ASSIGN_OR_RETURN(const Value view, find_method(self, "items")(runtime, self, {}));
  return runtime.iterator(view.items(), self.from_user());
}

Result<Value> filter_dictsort(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("dictsort", args, {"case_sensitive", "by", "reverse"}));
  if (!self.is(Kind::kDict)) {
    return type_error(fmt::format("'{}' object has no attribute 'items'", type_name(self)));
  }
  int64_t position = 0;
  if (bound.has(1)) {
    ASSIGN_OR_RETURN(const Text* by, bound.text(1));
    if (by->bytes() != "key" && by->bytes() != "value") {
      return type_error("You can only sort by either \"key\" or \"value\"");
    }
    position = by->bytes() == "key" ? 0 : 1;
  }
  ASSIGN_OR_RETURN(const Value view, find_method(self, "items")(runtime, self, {}));
  ASSIGN_OR_RETURN(const std::vector<Value> keys,
                   sort_keys(runtime, view.items(), Value::integer(position), bound.flag(0, false)));
  ASSIGN_OR_RETURN(const std::vector<size_t> order, sort_order(runtime, keys, bound.flag(2, false)));
  ASSIGN_OR_RETURN(std::vector<Value> sorted, reorder(view.items(), order));
  return runtime.list(std::move(sorted), self.from_user());
}

Result<Value> filter_groupby(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("groupby", args, {"attribute", "default", "case_sensitive"}, 1));
  ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.elements(self));
  const Value* missing = bound.has(1) && !bound[1].is(Kind::kNone) ? &bound[1] : nullptr;
  ASSIGN_OR_RETURN(const std::vector<Value> keys, sort_keys(runtime, items, bound[0], bound.flag(2, false), missing));
  ASSIGN_OR_RETURN(const std::vector<size_t> order, sort_order(runtime, keys, false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < order.size();) {
    std::vector<Value> members;
    size_t end = begin;
    bool same = true;
    while (end < order.size() && same) {
      members.push_back(items[order[end]]);
      ++end;
      if (end < order.size()) {
        ASSIGN_OR_RETURN(same, equal(runtime, keys[order[begin]], keys[order[end]]));
      }
    }
    ASSIGN_OR_RETURN(Value grouper, follow_path(runtime, members[0], bound[0], missing));
    ASSIGN_OR_RETURN(Value list, runtime.list(std::move(members), self.from_user()));
    ASSIGN_OR_RETURN(const Value group, runtime.tuple({std::move(grouper), std::move(list)}, self.from_user()));
    group.list().view_name = "group";  // gives it the attributes grouper and list
    groups.push_back(group);
    begin = end;
  }
  return runtime.list(std::move(groups), self.from_user());
}

Result<Value> filter_batch(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("batch", args, {"linecount", "fill_with"}, 1));
  ASSIGN_OR_RETURN(const int64_t given, bound.integer(0, 1));
  ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.elements(self));
  const auto count = static_cast<size_t>(std::max<int64_t>(given, 1));
  std::vector<Value> batches;
  for (size_t begin = 0; begin < items.size(); begin += count) {
    const size_t end = std::min(items.size() - begin, count) + begin;
    std::vector<Value> batch(items.begin() + static_cast<std::ptrdiff_t>(begin),
                             items.begin() + static_cast<std::ptrdiff_t>(end));
    if (bound.has(1) && !bound[1].is(Kind::kNone) && batch.size() < count) {
      TRY(runtime.charge_bytes(std::min(count, runtime.limits().max_made_bytes) * sizeof(Value)));
      batch.resize(count, bound[1]);
    }
    ASSIGN_OR_RETURN(Value list, runtime.list(std::move(batch)));
    batches.push_back(std::move(list));
  }
  return runtime.iterator(std::move(batches), self.from_user());
}

Result<Value> filter_slice(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("slice", args, {"slices", "fill_with"}, 1));
  ASSIGN_OR_RETURN(const int64_t slices, bound.integer(0, 1));
  ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.elements(self));
  if (slices == 0) {
    return type_error("integer division or modulo by zero");
  }
  std::vector<Value> columns;
  const int64_t per_slice = static_cast<int64_t>(items.size()) / slices;
  const int64_t with_extra = static_cast<int64_t>(items.size()) % slices;
  auto next = items.begin();
  for (int64_t i = 0; i < slices; ++i) {
    const auto end = next + per_slice + (i < with_extra ? 1 : 0);
    std::vector<Value> column(next, end);
    if (bound.has(1) && !bound[1].is(Kind::kNone) && i >= with_extra) {
      column.push_back(bound[1]);
    }
    ASSIGN_OR_RETURN(Value list, runtime.list(std::move(column)));
    columns.push_back(std::move(list));
    next = end;
  }
  return runtime.iterator(std::move(columns), self.from_user());
}

}  // namespace

Result<Value> ignore_case(Runtime& runtime, const Value& value) {
  if (!value.is(Kind::kString)) {
    return value;
  }
  return runtime.string(change_case(value.text(), Case::kLower));
}

const LibraryEntry kSequenceFilters[] = {
    {"batch", filter_batch},
    {"count", filter_length},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"groupby", filter_groupby},
    {"items", filter_items},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"max", filter_extreme<true>},
    {"min", filter_extreme<false>},
    {"reverse", filter_reverse},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
    {"", nullptr},
};

}  // namespace tessera::jinja

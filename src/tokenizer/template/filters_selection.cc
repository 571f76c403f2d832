// Filters that apply another filter, a test or an attribute path to each element.

#include <algorithm>

#include "fmt/format.h"

#include "tokenizer/template/library.h"
#include "tokenizer/template/operators.h"

namespace tessera::jinja {
namespace {

/// The first positional argument, taken from `args`. Errors: kInvalidArgument with `message` when there is none.
Result<Value> take_first(CallArgs& args, std::string_view message) {
  if (args.positional.empty()) {
    return type_error(std::string(message));
  }
  Value first = args.positional.front();
  args.positional.erase(args.positional.begin());
  return first;
}

Result<Value> map_attribute(Runtime& runtime, std::vector<Value> items, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("map", args, {"attribute", "default"}, 1));
  const Value* missing = bound.has(1) && !bound[1].is(Kind::kNone) ? &bound[1] : nullptr;
  for (Value& item : items) {
    ASSIGN_OR_RETURN(item, follow_path(runtime, std::move(item), bound[0], missing));
  }
  return runtime.iterator(std::move(items));
}

Result<Value> filter_map(Runtime& runtime, const Value& self, const CallArgs& args) {
  if (!is_true(self)) {
    return runtime.iterator({});
  }
  ASSIGN_OR_RETURN(std::vector<Value> items, runtime.elements(self));
  const bool by_attribute =
      args.positional.empty() &&
      std::any_of(args.named.begin(), args.named.end(), [](const auto& a) { return a.first == "attribute"; });
  if (by_attribute) {
    return map_attribute(runtime, std::move(items), args);
  }
  CallArgs rest = args;
  ASSIGN_OR_RETURN(const Value name, take_first(rest, "map requires a filter argument"));
  if (!name.is(Kind::kString)) {
    return type_error("map requires the name of a filter");
  }
  for (Value& item : items) {
    ASSIGN_OR_RETURN(item, runtime.call_filter(name.text().view(), item, rest));
  }
  return runtime.iterator(std::move(items));
}

/// select, reject, selectattr, rejectattr.
template <bool by_attribute, bool wanted>
Result<Value> filter_select(Runtime& runtime, const Value& self, const CallArgs& args) {
  if (!is_true(self)) {
    return runtime.iterator({});
  }
  ASSIGN_OR_RETURN(std::vector<Value> items, runtime.elements(self));
  CallArgs rest = args;
  Value path = Value::none();
  if (by_attribute) {
    ASSIGN_OR_RETURN(path, take_first(rest, "Missing parameter for attribute name"));
  }
  Value test;
  if (!rest.positional.empty()) {
    ASSIGN_OR_RETURN(test, take_first(rest, ""));
    if (!test.is(Kind::kString)) {
      return type_error("the name of a test must be a str");
    }
  }
  std::vector<Value> kept;
  for (Value& item : items) {
    ASSIGN_OR_RETURN(const Value subject, follow_path(runtime, item, path, nullptr));
    bool holds = is_true(subject);
    if (test.is(Kind::kString)) {
      ASSIGN_OR_RETURN(holds, runtime.call_test(test.text().view(), subject, rest));
    }
    if (holds == wanted) {
      kept.push_back(std::move(item));
    }
  }
  return runtime.iterator(std::move(kept));
}

}  // namespace

Result<Value> follow_path(Runtime& runtime, Value item, const Value& path, const Value* missing) {
  if (path.is(Kind::kNone)) {
    return item;
  }
  if (!path.is(Kind::kString)) {
    return get_item(runtime, item, path);
  }
  const std::string_view text = path.text().view();
  TRY(runtime.charge_bytes(text.size()));
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const bool digits =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string_view::npos;
    Value key = Value::integer(digits ? std::stol(std::string(part)) : 0);
    if (!digits) {
      ASSIGN_OR_RETURN(key, runtime.string(std::string(part)));
    }
    ASSIGN_OR_RETURN(item, get_item(runtime, item, key));
    if (missing != nullptr && item.is(Kind::kUndefined)) {
      item = *missing;
    }
    begin = end + 1;
  }
  return item;
}

const LibraryEntry kSelectionFilters[] = {
    {"map", filter_map},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<true, false>},
    {"select", filter_select<false, true>},
    {"selectattr", filter_select<true, true>},
    {"", nullptr},
};

}  // namespace tessera::jinja

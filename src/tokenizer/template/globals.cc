// Global functions of the template language.

#include <ctime>
#include <utility>

#include "fmt/format.h"

#include "tokenizer/template/format.h"
#include "tokenizer/template/library.h"

namespace tessera::jinja {
namespace {

// Bounds the numbers of a range so that no sum or product of positions overflows.
constexpr int64_t kMaxRangeNumber = int64_t{1} << 40;

Result<Value> global_range(Runtime& runtime, const Value& /*self*/, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("range", args, {"start", "stop", "step"}, 1));
  if (!args.named.empty()) {
    return type_error("range() takes no keyword arguments");
  }
  auto range = std::make_shared<RangeObject>();
  ASSIGN_OR_RETURN(range->start, bound.integer(0, 0));
  ASSIGN_OR_RETURN(range->stop, bound.integer(1, 0));
  ASSIGN_OR_RETURN(range->step, bound.integer(2, 1));
  if (!bound.has(1)) {
    range->stop = std::exchange(range->start, 0);
  }
  if (range->step == 0) {
    return type_error("range() arg 3 must not be zero");
  }
  for (const int64_t number : {range->start, range->stop, range->step}) {
    if (number > kMaxRangeNumber || number < -kMaxRangeNumber) {
      return limit_error("as the numbers of range()", static_cast<size_t>(kMaxRangeNumber));
    }
  }
  if (range->size() > static_cast<int64_t>(runtime.limits().max_range)) {
    return limit_error("elements of range()", runtime.limits().max_range);
  }
  TRY(runtime.charge_bytes(sizeof(RangeObject)));
  return Value(Kind::kRange, std::move(range));
}

/// dict(mapping or pairs, **named)
Result<Value> global_dict(Runtime& runtime, const Value& /*self*/, const CallArgs& args) {
  if (args.positional.size() > 1) {
    return type_error(fmt::format("dict expected at most 1 argument, got {}", args.positional.size()));
  }
  std::vector<std::pair<Value, Value>> entries;
  if (!args.positional.empty() && args.positional[0].is(Kind::kDict)) {
    entries = args.positional[0].dict().entries;
  } else if (!args.positional.empty()) {
    ASSIGN_OR_RETURN(const std::vector<Value> pairs, runtime.elements(args.positional[0]));
    for (const Value& pair : pairs) {
      ASSIGN_OR_RETURN(const std::vector<Value> parts, runtime.elements(pair));
      if (parts.size() != 2) {
        return type_error("dictionary update sequence elements must have length 2");
      }
      entries.emplace_back(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : args.named) {
    ASSIGN_OR_RETURN(Value key, runtime.string(name));
    entries.emplace_back(std::move(key), value);
  }
  return runtime.dict(std::move(entries));
}

Result<Value> global_namespace(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Value dict, global_dict(runtime, self, args));
  const std::shared_ptr<Object>& object = dict.object();
  object->depth = 1;  // kept objects cut every chain through them
  runtime.keep(object);
  return Value(Kind::kNamespace, object);
}

Result<Value> global_raise(Runtime& runtime, const Value& /*self*/, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("raise_exception", args, {"message"}, 1));
  ASSIGN_OR_RETURN(const Text message, to_text(runtime, bound[0]));
  return type_error(message.bytes());
}

Result<Value> global_strftime(Runtime& runtime, const Value& /*self*/, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("strftime_now", args, {"format"}, 1));
  ASSIGN_OR_RETURN(const Text* format, bound.text(0));
  const std::time_t now = runtime.options().now.value_or(std::time(nullptr));
  std::tm local{};
  localtime_r(&now, &local);
  constexpr size_t kMaxFormat = 1000;
  if (format->size() > kMaxFormat) {
    return limit_error("bytes of a time format", kMaxFormat);
  }
  // strftime returns 0 both for an empty result and for one that does not fit: a final mark tells them apart.
  std::string printed(16 * kMaxFormat, '\0');
  const size_t n = std::strftime(printed.data(), printed.size(), (format->bytes() + "$").c_str(), &local);
  if (n == 0) {
    return limit_error("bytes of a printed time", printed.size());
  }
  printed.resize(n - 1);
  return runtime.string(std::move(printed));
}

/// What joiner() returns: nothing when first called, the separator afterwards.
Result<Value> call_joiner(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("joiner", args, {}).status());
  IteratorObject& state = self.iterator();
  if (state.next == 0) {
    state.next = 1;
    return runtime.string("");
  }
  return state.items[0];
}

Result<Value> global_joiner(Runtime& runtime, const Value& /*self*/, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("joiner", args, {"sep"}));
  Value separator;
  if (bound.has(0)) {
    separator = bound[0];
  } else {
    ASSIGN_OR_RETURN(separator, runtime.string(", "));
  }
  ASSIGN_OR_RETURN(Value state, runtime.iterator({separator}));
  return runtime.function("joiner", "<joiner>", call_joiner, std::move(state));
}

}  // namespace

const LibraryEntry kGlobals[] = {
    {"dict", global_dict},
    {"joiner", global_joiner},
    {"namespace", global_namespace},
    {"raise_exception", global_raise},
    {"range", global_range},
    {"strftime_now", global_strftime},
    {"", nullptr},
};

}  // namespace tessera::jinja

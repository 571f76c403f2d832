// Methods of str.

#include <algorithm>

#include "fmt/format.h"

#include "tokenizer/template/format.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/text_operations.h"
#include "tokenizer/template/unicode.h"

namespace tessera::jinja {
namespace {

template <Case to>
Result<Value> method_case(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("str method", args, {}).status());
  TRY(runtime.charge_scan(self.text().size()));
  return runtime.string(change_case(self.text(), to));
}

template <bool left, bool right>
Result<Value> method_strip(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("strip", args, {"chars"}));
  const Text* characters = nullptr;
  if (bound.has(0) && !bound[0].is(Kind::kNone)) {
    ASSIGN_OR_RETURN(characters, bound.text(0));
    const size_t per_character = characters->size() + 1;
    TRY(runtime.charge_scan(per_character * std::min(self.text().size(), size_t{1} << 32U)));
  }
  TRY(runtime.charge_scan(self.text().size()));
  return runtime.string(strip(self.text(), characters, left, right));
}

template <bool from_right>
Result<Value> method_split(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("split", args, {"sep", "maxsplit"}));
  const Text* separator = nullptr;
  if (bound.has(0) && !bound[0].is(Kind::kNone)) {
    ASSIGN_OR_RETURN(separator, bound.text(0));
    if (separator->empty()) {
      return type_error("empty separator");
    }
  }
  ASSIGN_OR_RETURN(const int64_t max_splits, bound.integer(1, -1));
  TRY(runtime.charge_bytes(self.text().size()));
  if (from_right && separator != nullptr) {
    TRY(charge_reverse_search(runtime, self.text(), *separator));
  }
  return list_of_texts(runtime, split(self.text(), separator, max_splits, from_right), self.from_user());
}

Result<Value> method_splitlines(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("splitlines", args, {"keepends"}));
  TRY(runtime.charge_bytes(self.text().size()));
  return list_of_texts(runtime, split_lines(self.text(), bound.flag(0, false)), self.from_user());
}

template <bool from_right>
Result<Value> method_partition(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("partition", args, {"sep"}, 1));
  ASSIGN_OR_RETURN(const Text* separator, bound.text(0));
  if (separator->empty()) {
    return type_error("empty separator");
  }
  const Text& text = self.text();
  TRY(runtime.charge_bytes(text.size()));
  if (from_right) {
    TRY(charge_reverse_search(runtime, text, *separator));
  }
  const size_t at = from_right ? text.bytes().rfind(separator->bytes()) : find_bytes(text.view(), separator->view());
  Text parts[3];
  if (at == std::string::npos) {
    parts[from_right ? 2 : 0] = text;
  } else {
    parts[0] = text.slice(0, at);
    parts[1] = text.slice(at, at + separator->size());
    parts[2] = text.slice(at + separator->size(), text.size());
  }
  std::vector<Value> values;
  for (Text& part : parts) {
    ASSIGN_OR_RETURN(Value value, runtime.string(std::move(part)));
    values.push_back(std::move(value));
  }
  return runtime.tuple(std::move(values), self.from_user());
}

/// The byte range of self[start:stop] given as arguments `first` and `first + 1`; an empty one if start is past the
/// end.
struct ByteRange {
  size_t begin;
  size_t end;
  bool valid;  // false when start lies past the end: not even an empty text is found there
};

Result<ByteRange> byte_range(Runtime& runtime, const Text& text, const Bound& bound, size_t first) {
  ByteRange range{0, text.size(), true};
  if (!bound.has(first) && !bound.has(first + 1)) {
    return range;
  }
  TRY(runtime.charge_scan(text.size()));
  const auto n = static_cast<int64_t>(count_code_points(text.view()));
  const auto clip = [&](size_t i, int64_t otherwise) -> Result<int64_t> {
    if (!bound.has(i) || bound[i].is(Kind::kNone)) {
      return otherwise;
    }
    ASSIGN_OR_RETURN(const int64_t at, bound.integer(i, 0));
    return at < 0 ? std::max<int64_t>(at < -n ? 0 : at + n, 0) : at;
  };
  ASSIGN_OR_RETURN(const int64_t start, clip(first, 0));
  ASSIGN_OR_RETURN(const int64_t stop, clip(first + 1, n));
  range.valid = start <= std::min(stop, n);
  range.begin = offset_of(text.view(), static_cast<size_t>(start));
  range.end = std::max(range.begin, offset_of(text.view(), static_cast<size_t>(std::min(stop, n))));
  return range;
}

template <bool at_end>
Result<Value> method_starts_or_ends(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::bind(at_end ? "endswith" : "startswith", args, {"prefix", "start", "end"}, 1));
  ASSIGN_OR_RETURN(const ByteRange range, byte_range(runtime, self.text(), bound, 1));
  const std::string_view text = self.text().view().substr(range.begin, range.end - range.begin);
  const auto matches = [&](const Value& affix) {
    const std::string_view s = affix.text().view();
    return range.valid && s.size() <= text.size() && text.substr(at_end ? text.size() - s.size() : 0, s.size()) == s;
  };
  if (bound[0].is(Kind::kString)) {
    TRY(runtime.charge_scan(bound[0].text().size()));
    return Value::boolean(matches(bound[0]));
  }
  if (!bound[0].is(Kind::kTuple)) {
    return type_error(fmt::format("{} first arg must be str or a tuple of str, not {}",
                                  at_end ? "endswith" : "startswith", type_name(bound[0])));
  }
  for (const Value& affix : bound[0].items()) {
    if (!affix.is(Kind::kString)) {
      return type_error(fmt::format("tuple for {} must only contain str, not {}", at_end ? "endswith" : "startswith",
                                    type_name(affix)));
    }
    TRY(runtime.charge_scan(affix.text().size()));
    if (matches(affix)) {
      return Value::boolean(true);
    }
  }
  return Value::boolean(false);
}

template <bool from_right, bool must_exist>
Result<Value> method_find(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("find", args, {"sub", "start", "end"}, 1));
  ASSIGN_OR_RETURN(const Text* sub, bound.text(0));
  const Text& text = self.text();
  TRY(from_right ? charge_reverse_search(runtime, text, *sub) : runtime.charge_scan(text.size() + sub->size()));
  ASSIGN_OR_RETURN(const ByteRange range, byte_range(runtime, text, bound, 1));
  const std::string_view within = text.view().substr(range.begin, range.end - range.begin);
  const size_t at = from_right ? within.rfind(sub->view()) : find_bytes(within, sub->view());
  if (at == std::string_view::npos || !range.valid) {
    return must_exist ? Result<Value>(type_error("substring not found")) : Value::integer(-1);
  }
  return Value::integer(static_cast<int64_t>(count_code_points(text.view().substr(0, range.begin + at))));
}

Result<Value> method_count(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("count", args, {"sub", "start", "end"}, 1));
  ASSIGN_OR_RETURN(const Text* sub, bound.text(0));
  TRY(runtime.charge_scan(self.text().size()));
  ASSIGN_OR_RETURN(const ByteRange range, byte_range(runtime, self.text(), bound, 1));
  const std::string_view within = self.text().view().substr(range.begin, range.end - range.begin);
  if (!range.valid) {
    return Value::integer(0);
  }
  if (sub->empty()) {
    return Value::integer(static_cast<int64_t>(count_code_points(within)) + 1);
  }
  int64_t count = 0;
  for (size_t at = find_bytes(within, sub->view()); at != std::string_view::npos;
       at = find_bytes(within, sub->view(), at + sub->size())) {
    ++count;
  }
  return Value::integer(count);
}

Result<Value> method_replace(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("replace", args, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const Text* old, bound.text(0));
  ASSIGN_OR_RETURN(const Text* with, bound.text(1));
  ASSIGN_OR_RETURN(const int64_t count, bound.integer(2, -1));
  ASSIGN_OR_RETURN(Text result, replace(runtime, self.text(), *old, *with, count));
  return runtime.string(std::move(result));
}

Result<Value> method_join(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("join", args, {"iterable"}, 1));
  ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.elements(bound[0]));
  Text result;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is(Kind::kString)) {
      return type_error(fmt::format("sequence item {}: expected str instance, {} found", i, type_name(items[i])));
    }
    TRY(runtime.charge_bytes(self.text().size() + items[i].text().size()));
    if (i > 0) {
      result.append(self.text());
    }
    result.append(items[i].text());
  }
  return runtime.string(std::move(result));
}

template <bool suffix>
Result<Value> method_remove_affix(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind(suffix ? "removesuffix" : "removeprefix", args, {"affix"}, 1));
  ASSIGN_OR_RETURN(const Text* affix, bound.text(0));
  const Text& text = self.text();
  const size_t n = affix->size();
  if (n > text.size() || text.view().substr(suffix ? text.size() - n : 0, n) != affix->view()) {
    return self;
  }
  return runtime.string(suffix ? text.slice(0, text.size() - n) : text.slice(n, text.size()));
}

template <char align>
Result<Value> method_pad(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("just", args, {"width", "fillchar"}, 1));
  ASSIGN_OR_RETURN(const int64_t width, bound.integer(0, 0));
  Text fill(" ", false);
  if (bound.has(1)) {
    ASSIGN_OR_RETURN(const Text* given, bound.text(1));
    if (count_code_points(given->view()) != 1) {
      return type_error("The fill character must be exactly one character long");
    }
    fill = *given;
  }
  ASSIGN_OR_RETURN(Text result, pad(runtime, self.text(), width, align, fill));
  return runtime.string(std::move(result));
}

Result<Value> method_zfill(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("zfill", args, {"width"}, 1));
  ASSIGN_OR_RETURN(const int64_t width, bound.integer(0, 0));
  const Text& text = self.text();
  const size_t sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+') ? 1 : 0;
  ASSIGN_OR_RETURN(const Text digits, pad(runtime, text.slice(sign, text.size()), width - static_cast<int64_t>(sign),
                                          '>', Text("0", false)));
  Text result = text.slice(0, sign);
  result.append(digits);
  return runtime.string(std::move(result));
}

Result<Value> method_format(Runtime& runtime, const Value& self, const CallArgs& args) {
  return brace_format(runtime, self.text(), args);
}

/// True when there is a character and all satisfy `holds`.
template <bool (*holds)(uint32_t)>
Result<Value> method_all(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("str method", args, {}).status());
  const std::string_view text = self.text().view();
  TRY(runtime.charge_scan(text.size()));
  uint32_t c = 0;
  for (size_t pos = 0; pos < text.size();) {
    pos += decode(text, pos, &c);
    if (!holds(c)) {
      return Value::boolean(false);
    }
  }
  return Value::boolean(!text.empty());
}

bool is_alnum(uint32_t c) {
  return is_alpha(c) || is_numeric(c);
}
/// Decimal digits and the few superscripts that Python counts as digits too.
bool is_digit(uint32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0x2070 && c <= 0x2079 && c != 0x2071) ||
         (c >= 0x2080 && c <= 0x2089);
}

/// Some cased character, and none of the other case.
template <bool upper>
Result<Value> method_is_case(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("str method", args, {}).status());
  const std::string_view text = self.text().view();
  TRY(runtime.charge_scan(text.size()));
  bool found = false;
  uint32_t c = 0;
  for (size_t pos = 0; pos < text.size();) {
    pos += decode(text, pos, &c);
    if ((upper ? is_lower(c) : is_upper(c)) || is_title(c)) {
      return Value::boolean(false);
    }
    found = found || (upper ? is_upper(c) : is_lower(c));
  }
  return Value::boolean(found);
}

Result<Value> method_istitle(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("str method", args, {}).status());
  const std::string_view text = self.text().view();
  TRY(runtime.charge_scan(text.size()));
  bool found = false;
  bool inside_word = false;
  uint32_t c = 0;
  for (size_t pos = 0; pos < text.size();) {
    pos += decode(text, pos, &c);
    const bool capital = is_upper(c) || is_title(c);
    if ((capital && inside_word) || (is_lower(c) && !inside_word)) {
      return Value::boolean(false);
    }
    inside_word = capital || is_lower(c);
    found = found || inside_word;
  }
  return Value::boolean(found);
}

bool is_ascii(uint32_t c) {
  return c < 0x80;
}

Result<Value> method_isascii(Runtime& runtime, const Value& self, const CallArgs& args) {
  return self.text().empty() ? Result<Value>(Value::boolean(true)) : method_all<is_ascii>(runtime, self, args);
}

}  // namespace

const LibraryEntry kTextMethods[] = {
    {"capitalize", method_case<Case::kCapitalize>},
    {"casefold", method_case<Case::kLower>},
    {"center", method_pad<'^'>},
    {"count", method_count},
    {"endswith", method_starts_or_ends<true>},
    {"find", method_find<false, false>},
    {"format", method_format},
    {"index", method_find<false, true>},
    {"isalnum", method_all<is_alnum>},
    {"isalpha", method_all<is_alpha>},
    {"isascii", method_isascii},
    {"isdecimal", method_all<is_decimal>},
    {"isdigit", method_all<is_digit>},
    {"islower", method_is_case<false>},
    {"isnumeric", method_all<is_numeric>},
    {"isspace", method_all<is_space>},
    {"istitle", method_istitle},
    {"isupper", method_is_case<true>},
    {"join", method_join},
    {"ljust", method_pad<'<'>},
    {"lower", method_case<Case::kLower>},
    {"lstrip", method_strip<true, false>},
    {"partition", method_partition<false>},
    {"removeprefix", method_remove_affix<false>},
    {"removesuffix", method_remove_affix<true>},
    {"replace", method_replace},
    {"rfind", method_find<true, false>},
    {"rindex", method_find<true, true>},
    {"rjust", method_pad<'>'>},
    {"rpartition", method_partition<true>},
    {"rsplit", method_split<true>},
    {"rstrip", method_strip<false, true>},
    {"split", method_split<false>},
    {"splitlines", method_splitlines},
    {"startswith", method_starts_or_ends<false>},
    {"strip", method_strip<true, true>},
    {"swapcase", method_case<Case::kSwap>},
    {"title", method_case<Case::kTitle>},
    {"upper", method_case<Case::kUpper>},
    {"zfill", method_zfill},
    {"", nullptr},
};

}  // namespace tessera::jinja

// Filters that make texts.

#include <algorithm>

#include "fmt/format.h"

#include "tokenizer/template/format.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/text_operations.h"
#include "tokenizer/template/unicode.h"

namespace tessera::jinja {
namespace {

/// str(self) as a value.
Result<Value> as_string(Runtime& runtime, const Value& self) {
  if (self.is(Kind::kString)) {
    return self;
  }
  ASSIGN_OR_RETURN(Text text, to_text(runtime, self));
  return runtime.string(std::move(text));
}

Result<Value> filter_string(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("string", args, {}).status());
  return as_string(runtime, self);
}

/// The str method of the same name applied to str(self).
template <const char* method_name>
Result<Value> through_method(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Value text, as_string(runtime, self));
  return find_method(text, method_name)(runtime, text, args);
}

constexpr char kUpper[] = "upper";
constexpr char kLower[] = "lower";
constexpr char kCapitalize[] = "capitalize";
constexpr char kStrip[] = "strip";

Result<Value> filter_title(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("title", args, {}).status());
  ASSIGN_OR_RETURN(const Value value, as_string(runtime, self));
  const Text& text = value.text();
  TRY(runtime.charge_bytes(text.size()));
  Text result;
  bool word_starts = true;
  text.for_each_run(0, text.size(), [&](std::string_view run, bool from_user) {
    uint32_t c = 0;
    for (size_t pos = 0; pos < run.size();) {
      const size_t length = decode(run, pos, &c);
      const Text one(std::string(run.substr(pos, length)), from_user);
      result.append(change_case(one, word_starts ? Case::kUpper : Case::kLower));
      word_starts =
          is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
      pos += length;
    }
  });
  return runtime.string(std::move(result));
}

Result<Value> filter_replace(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("replace", args, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const Text text, to_text(runtime, self));
  ASSIGN_OR_RETURN(const Text old, to_text(runtime, bound[0]));
  ASSIGN_OR_RETURN(const Text with, to_text(runtime, bound[1]));
  int64_t count = -1;
  if (bound.has(2) && !bound[2].is(Kind::kNone)) {
    ASSIGN_OR_RETURN(count, bound.integer(2, -1));
  }
  ASSIGN_OR_RETURN(Text result, replace(runtime, text, old, with, count));
  return runtime.string(std::move(result));
}

Result<Value> filter_join(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("join", args, {"d", "attribute"}));
  Text separator;
  if (bound.has(0)) {
    ASSIGN_OR_RETURN(separator, to_text(runtime, bound[0]));
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.elements(self));
  Text result;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (bound.has(1) && !bound[1].is(Kind::kNone)) {
      ASSIGN_OR_RETURN(item, follow_path(runtime, std::move(item), bound[1], nullptr));
    }
    if (i > 0) {
      TRY(runtime.charge_bytes(separator.size()));
      result.append(separator);
    }
    TRY(append_str(runtime, item, result));
  }
  return runtime.string(std::move(result));
}

Result<Value> filter_indent(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("indent", args, {"width", "first", "blank"}));
  if (!self.is(Kind::kString)) {
    return type_error(fmt::format("can only indent str, not {}", type_name(self)));
  }
  Text indention;
  if (bound.has(0) && bound[0].is(Kind::kString)) {
    indention = bound[0].text();
  } else {
    ASSIGN_OR_RETURN(const int64_t width, bound.integer(0, 4));
    ASSIGN_OR_RETURN(indention, pad(runtime, Text(), width, '<', Text(" ", false)));
  }
  Text text = self.text();
  text.append("\n", false);
  const std::vector<Text> lines = split_lines(text, false);
  Text result;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      result.append("\n", false);
    }
    const bool indented = i == 0 ? bound.flag(1, false) : bound.flag(2, false) || !lines[i].empty();
    TRY(runtime.charge_bytes(indention.size() + lines[i].size()));
    if (indented) {
      result.append(indention);
    }
    result.append(lines[i]);
  }
  return runtime.string(std::move(result));
}

Result<Value> filter_truncate(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("truncate", args, {"length", "killwords", "end", "leeway"}));
  ASSIGN_OR_RETURN(const int64_t length, bound.integer(0, 255));
  ASSIGN_OR_RETURN(const int64_t leeway, bound.integer(3, 5));
  Text end("...", false);
  if (bound.has(2)) {
    ASSIGN_OR_RETURN(const Text* given, bound.text(2));
    end = *given;
  }
  const auto end_length = static_cast<int64_t>(count_code_points(end.view()));
  if (length < end_length) {
    return type_error(fmt::format("expected length >= {}, got {}", end_length, length));
  }
  if (leeway < 0) {
    return type_error(fmt::format("expected leeway >= 0, got {}", leeway));
  }
  ASSIGN_OR_RETURN(const int64_t n, runtime.length(self));
  if (n <= length || n - length <= leeway) {
    return self;
  }
  if (!self.is(Kind::kString)) {
    return type_error(fmt::format("'{}' object cannot be truncated", type_name(self)));
  }
  const Text& text = self.text();
  TRY(runtime.charge_bytes(text.size()));
  Text shown = text.slice(0, offset_of(text.view(), static_cast<size_t>(length - end_length)));
  if (!bound.flag(1, false)) {
    const size_t space = shown.bytes().rfind(' ');
    shown = space == std::string::npos ? shown : shown.slice(0, space);
  }
  shown.append(end);
  return runtime.string(std::move(shown));
}

Result<Value> filter_center(Runtime& runtime, const Value& self, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::bind("center", args, {"width"}));
  ASSIGN_OR_RETURN(const int64_t width, bound.integer(0, 80));
  ASSIGN_OR_RETURN(const Text text, to_text(runtime, self));
  ASSIGN_OR_RETURN(Text result, pad(runtime, text, width, '^', Text(" ", false)));
  return runtime.string(std::move(result));
}

Result<Value> filter_wordcount(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("wordcount", args, {}).status());
  ASSIGN_OR_RETURN(const Text text, to_text(runtime, self));
  int64_t words = 0;
  bool inside = false;
  uint32_t c = 0;
  for (size_t pos = 0; pos < text.size();) {
    pos += decode(text.view(), pos, &c);
    const bool word = is_alpha(c) || is_numeric(c) || c == '_';
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::integer(words);
}

/// Replaces every byte that `substitute` gives a text for.
template <typename F>
Result<Value> substitute_bytes(Runtime& runtime, const Text& text, F substitute) {
  TRY(runtime.charge_bytes(text.size()));
  Text result;
  text.for_each_run(0, text.size(), [&](std::string_view run, bool from_user) {
    std::string changed;
    for (const char c : run) {
      changed += substitute(c);
    }
    result.append(changed, from_user);
  });
  return runtime.string(std::move(result));
}

Result<Value> filter_escape(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("escape", args, {}).status());
  ASSIGN_OR_RETURN(const Text text, to_text(runtime, self));
  return substitute_bytes(runtime, text, [](char c) -> std::string {
    switch (c) {
      case '&': return "&amp;";
      case '<': return "&lt;";
      case '>': return "&gt;";
      case '\'': return "&#39;";
      case '"': return "&#34;";
      default: return {c};
    }
  });
}

Result<Value> url_quote(Runtime& runtime, const Value& value, bool query) {
  ASSIGN_OR_RETURN(const Text text, to_text(runtime, value));
  return substitute_bytes(runtime, text, [query](char c) -> std::string {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos;
    if (plain || (c == '/' && !query)) {
      return {c};
    }
    return c == ' ' && query ? "+" : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  });
}

Result<Value> filter_urlencode(Runtime& runtime, const Value& self, const CallArgs& args) {
  TRY(Bound::bind("urlencode", args, {}).status());
  const bool pairs_inside =
      self.is(Kind::kDict) || self.is_sequence() || self.is(Kind::kView) || self.is(Kind::kIterator);
  if (!pairs_inside) {
    return url_quote(runtime, self, false);
  }
  Value pairs = self;
  if (self.is(Kind::kDict)) {
    ASSIGN_OR_RETURN(pairs, find_method(self, "items")(runtime, self, {}));
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.elements(pairs));
  Text result;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const std::vector<Value> parts, runtime.elements(item));
    if (parts.size() != 2) {
      return type_error("urlencode needs pairs of key and value");
    }
    ASSIGN_OR_RETURN(const Value key, url_quote(runtime, parts[0], true));
    ASSIGN_OR_RETURN(const Value value, url_quote(runtime, parts[1], true));
    if (!result.empty()) {
      result.append("&", false);
    }
    result.append(key.text());
    result.append("=", false);
    result.append(value.text());
  }
  return runtime.string(std::move(result));
}

Result<Value> filter_format(Runtime& runtime, const Value& self, const CallArgs& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    return type_error("can't handle positional and keyword arguments at the same time");
  }
  ASSIGN_OR_RETURN(const Text format, to_text(runtime, self));
  if (args.named.empty()) {
    ASSIGN_OR_RETURN(const Value tuple, runtime.tuple(args.positional));
    return percent_format(runtime, format, tuple);
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : args.named) {
    ASSIGN_OR_RETURN(Value key, runtime.string(name));
    entries.emplace_back(std::move(key), value);
  }
  ASSIGN_OR_RETURN(const Value dict, runtime.dict(std::move(entries)));
  return percent_format(runtime, format, dict);
}

}  // namespace

const LibraryEntry kTextFilters[] = {
    {"capitalize", through_method<kCapitalize>},
    {"center", filter_center},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"forceescape", filter_escape},
    {"format", filter_format},
    {"indent", filter_indent},
    {"join", filter_join},
    {"lower", through_method<kLower>},
    {"replace", filter_replace},
    {"safe", filter_string},
    {"string", filter_string},
    {"title", filter_title},
    {"trim", through_method<kStrip>},
    {"truncate", filter_truncate},
    {"upper", through_method<kUpper>},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
    {"", nullptr},
};

}  // namespace tessera::jinja

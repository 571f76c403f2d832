// JSON in and out (the json half of format.h).

#include "nlohmann/json.hpp"

#include <cmath>

#include "fmt/format.h"

#include "tokenizer/template/format.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/unicode.h"

namespace tessera::jinja {
namespace {

void append_json_text(const Text& text, bool ensure_ascii, Text& out) {
  const bool edge_origin = text.from_user_at(0);
  out.append("\"", edge_origin);
  text.for_each_run(0, text.size(), [&](std::string_view run, bool from_user) {
    std::string escaped;
    uint32_t c = 0;
    for (size_t pos = 0; pos < run.size();) {
      const size_t length = decode(run, pos, &c);
      switch (c) {
        case '"': escaped += "\\\""; break;
        case '\\': escaped += "\\\\"; break;
        case '\n': escaped += "\\n"; break;
        case '\r': escaped += "\\r"; break;
        case '\t': escaped += "\\t"; break;
        case '\b': escaped += "\\b"; break;
        case '\f': escaped += "\\f"; break;
        default:
          if (c < 0x20 || (ensure_ascii && c > 0x7E && c < 0x10000)) {
            escaped += fmt::format("\\u{:04x}", c);
          } else if (ensure_ascii && c >= 0x10000) {
            escaped += fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0U + (c >> 10U), 0xDC00U + (c & 0x3FFU));
          } else {
            escaped.append(run.substr(pos, length));
          }
      }
      pos += length;
    }
    out.append(escaped, from_user);
  });
  out.append("\"", text.empty() ? edge_origin : text.from_user_at(text.size() - 1));
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style, Text& out) : runtime_(runtime), style_(style), out_(out) {}

  Status write(const Value& value, size_t depth) {
    TRY(runtime_.charge_steps(1));
    if (depth > runtime_.limits().max_containers) {
      return limit_error("containers within containers", runtime_.limits().max_containers);
    }
    const bool user = value.from_user();
    switch (value.kind()) {
      case Kind::kNone: out_.append("null", user); return {};
      case Kind::kBool: out_.append(value.as_bool() ? "true" : "false", user); return {};
      case Kind::kInt: out_.append(fmt::format("{}", value.as_int()), user); return {};
      case Kind::kFloat: out_.append(number(value.as_real()), user); return {};
      case Kind::kString:
        TRY(runtime_.charge_bytes(value.text().size()));
        append_json_text(value.text(), style_.ensure_ascii, out_);
        return {};
      case Kind::kList:
      case Kind::kTuple: return write_items(value, depth);
      case Kind::kDict: return write_entries(value, depth);
      default: return type_error(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
    }
  }

 private:
  static std::string number(double d) {
    return std::isnan(d) ? "NaN" : std::isinf(d) ? (d < 0 ? "-Infinity" : "Infinity") : float_repr(d);
  }

  Status new_line(size_t depth, bool user) {
    if (style_.multi_line) {
      TRY(runtime_.charge_bytes(1 + depth * style_.indent.size()));
      out_.append("\n", user);
      for (size_t i = 0; i < depth; ++i) {
        out_.append(style_.indent, user);
      }
    }
    return {};
  }

  Status write_items(const Value& value, size_t depth) {
    const bool user = value.from_user();
    out_.append("[", user);
    for (size_t i = 0; i < value.items().size(); ++i) {
      if (i > 0) {
        out_.append(style_.item_separator, user);
      }
      TRY(new_line(depth + 1, user));
      TRY(write(value.items()[i], depth + 1));
    }
    if (!value.items().empty()) {
      TRY(new_line(depth, user));
    }
    out_.append("]", user);
    return runtime_.charge_bytes(2 + value.items().size() * style_.item_separator.size());
  }

  Status write_key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString: append_json_text(key.text(), style_.ensure_ascii, out_); return {};
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kFloat: {
        out_.append("\"", key.from_user());
        TRY(write(key, 0));
        out_.append("\"", key.from_user());
        return {};
      }
      default: return type_error(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
  }

  Status write_entries(const Value& value, size_t depth) {
    const bool user = value.from_user();
    const auto& entries = value.dict().entries;
    std::vector<size_t> order;
    if (style_.sort_keys) {
      std::vector<Value> keys;
      for (const auto& entry : entries) {
        keys.push_back(entry.first);
      }
      ASSIGN_OR_RETURN(order, sort_order(runtime_, keys, false));
    }
    out_.append("{", user);
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto& [key, item] = entries[style_.sort_keys ? order[i] : i];
      if (i > 0) {
        out_.append(style_.item_separator, user);
      }
      TRY(new_line(depth + 1, user));
      TRY(write_key(key));
      out_.append(style_.key_separator, user);
      TRY(write(item, depth + 1));
    }
    if (!entries.empty()) {
      TRY(new_line(depth, user));
    }
    out_.append("}", user);
    return runtime_.charge_bytes(2 + entries.size() * (style_.item_separator.size() + style_.key_separator.size()));
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  Text& out_;
};

/// Builds values while the parser reads; refuses nesting beyond the limit before any stack is used.
class ValueBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  ValueBuilder(Runtime& runtime, bool from_user) : runtime_(runtime), from_user_(from_user) {}

  bool null() override { return add(Value::none(from_user_)); }
  bool boolean(bool b) override { return add(Value::boolean(b, from_user_)); }
  bool number_integer(number_integer_t i) override { return add(Value::integer(i, from_user_)); }
  bool number_unsigned(number_unsigned_t u) override {
    return u <= INT64_MAX ? add(Value::integer(static_cast<int64_t>(u), from_user_))
                          : add(Value::real(static_cast<double>(u), from_user_));
  }
  bool number_float(number_float_t d, const string_t& /*raw*/) override { return add(Value::real(d, from_user_)); }
  bool string(string_t& s) override { return add(runtime_.string(std::move(s), from_user_)); }
  bool binary(binary_t& /*b*/) override { return false; }
  bool start_object(size_t /*n*/) override { return open(); }
  bool start_array(size_t /*n*/) override { return open(); }
  bool key(string_t& s) override {
    Result<Value> key = runtime_.string(std::move(s), from_user_);
    if (!key.ok()) {
      return fail(key.status());
    }
    open_.back().keys.push_back(*std::move(key));
    return true;
  }
  bool end_object() override {
    Level level = close();
    std::vector<std::pair<Value, Value>> entries;
    for (size_t i = 0; i < level.items.size(); ++i) {
      entries.emplace_back(std::move(level.keys[i]), std::move(level.items[i]));
    }
    return add(runtime_.dict(std::move(entries), from_user_));
  }
  bool end_array() override { return add(runtime_.list(close().items, from_user_)); }
  bool parse_error(size_t position, const std::string& /*token*/, const nlohmann::detail::exception& /*e*/) override {
    return fail(type_error(fmt::format("invalid JSON at byte {}", position)));
  }

  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] const Value& result() const { return result_; }

 private:
  struct Level {
    std::vector<Value> keys;
    std::vector<Value> items;
  };

  bool fail(Status status) {
    status_ = std::move(status);
    return false;
  }
  bool add(Result<Value> value) {
    if (!value.ok()) {
      return fail(value.status());
    }
    if (open_.empty()) {
      result_ = *std::move(value);
    } else {
      open_.back().items.push_back(*std::move(value));
    }
    return true;
  }
  bool open() {
    if (open_.size() >= runtime_.limits().max_containers) {
      return fail(limit_error("containers within containers", runtime_.limits().max_containers));
    }
    open_.emplace_back();
    return true;
  }
  Level close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    return level;
  }

  Runtime& runtime_;
  bool from_user_;
  std::vector<Level> open_;
  Value result_;
  Status status_;
};

}  // namespace

Status append_json(Runtime& runtime, const Value& value, const JsonStyle& style, Text& out) {
  return JsonWriter(runtime, style, out).write(value, 0);
}

Result<Value> parse_json(Runtime& runtime, std::string_view text, bool from_user) {
  TRY(runtime.charge_scan(text.size()));
  ValueBuilder builder(runtime, from_user);
  if (!nlohmann::json::sax_parse(text, &builder)) {
    return builder.status().ok() ? type_error("invalid JSON") : builder.status();
  }
  return builder.result();
}

}  // namespace tessera::jinja

// One long file: JSON values cannot pass through a header here (nlohmann stays in .cc files).
#include "runtime/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/json_error.h"
#include "base/json_limits.h"
#include "runtime/grammar/gbnf_text.h"
#include "runtime/grammar/json_rules.h"
#include "runtime/grammar/number_grammar.h"
#include "runtime/grammar/pattern_grammar.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxRules = 50000;
constexpr size_t kMaxMergedNodes = 5000000;  // JSON values that joining schemas copies
constexpr size_t kMaxMembers = 10000;        // of one object
constexpr size_t kMaxValues = 200000;        // schemas turned into rules, each time that they are used
constexpr size_t kMaxOtherNames = 20000;     // bytes of the names that additional properties must not have

constexpr std::string_view kTypes[] = {"object", "array", "string", "number", "integer", "boolean", "null"};

// What limits documents in ways that no grammar of ours can follow.
constexpr std::string_view kUnsupported[] = {"not",
                                             "if",
                                             "then",
                                             "else",
                                             "patternProperties",
                                             "propertyNames",
                                             "dependencies",
                                             "contains",
                                             "minContains",
                                             "maxContains",
                                             "dependentRequired",
                                             "dependentSchemas",
                                             "$dynamicRef",
                                             "$recursiveRef",
                                             "multipleOf",
                                             "uniqueItems",
                                             "unevaluatedItems"};

// Keywords of one type alone: a schema without "type" means them, as people write it.
constexpr std::string_view kObjectKeys[] = {"properties", "required", "additionalProperties", "minProperties",
                                            "maxProperties"};
constexpr std::string_view kArrayKeys[] = {"items", "prefixItems", "minItems", "maxItems"};
constexpr std::string_view kStringKeys[] = {"minLength", "maxLength", "pattern", "format"};
constexpr std::string_view kNumberKeys[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};

// Beside these a $ref, or an allOf of one schema, is all that a schema says.
constexpr std::string_view kJoiningKeys[] = {"$ref", "allOf", "anyOf", "oneOf", "type", "enum", "const"};
// Merged together.
constexpr std::string_view kPropertyKeys[] = {"properties", "required", "additionalProperties"};

// Only inside; callers hear kInvalidArgument.
constexpr ErrorCode kNothingFits = ErrorCode::kNotFound;

bool has_any(const Json& schema, std::span<const std::string_view> keys) {
  return std::ranges::any_of(keys, [&](std::string_view key) { return schema.contains(key); });
}

// Whether a schema limits documents by anything but `keyword`.
bool says_more_than(const Json& schema, std::string_view keyword) {
  const auto is_other = [&](std::string_view key) { return key != keyword && schema.contains(key); };
  return std::ranges::any_of(kJoiningKeys, is_other) || has_any(schema, kObjectKeys) || has_any(schema, kArrayKeys) ||
         has_any(schema, kStringKeys) || has_any(schema, kNumberKeys) || has_any(schema, kUnsupported);
}

// Values in a JSON text that is not too deep.
size_t n_nodes(const Json& value) {
  size_t n = 1;
  if (value.is_structured()) {
    for (const Json& child : value) {
      n += n_nodes(child);
    }
  }
  return n;
}

std::unordered_set<std::string> names_in(const Json& object) {
  std::unordered_set<std::string> names;
  for (const auto& [name, value] : object.items()) {
    names.insert(name);
  }
  return names;
}

std::string pointer_step(std::string_view name) {
  std::string step = "/";
  for (const char c : name) {
    step += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return step;
}

bool is_whole(const Json& value) {
  return value.is_number_integer() ||
         (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
}

bool fits_type(const Json& value, std::string_view type) {
  return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
         (type == "string" && value.is_string()) || (type == "number" && value.is_number()) ||
         (type == "integer" && is_whole(value)) || (type == "boolean" && value.is_boolean()) ||
         (type == "null" && value.is_null());
}

/// A schema and where it stands.
struct Place {
  const Json& schema;
  std::string pointer;
  int depth = 0;
};

class SchemaConverter {
 public:
  /// Result: an expression for the documents of the schema at pointer.
  Result<std::string> convert(const Json& document, const std::string& pointer);
  /// The next document is another.
  void forget_document() { references_.clear(); }
  std::string need(std::string_view rule);
  [[nodiscard]] std::string text() const;

 private:
  using Types = std::vector<std::string_view>;

  Result<std::string> value(const Place& at);
  Result<std::string> reference(const Place& at);
  Result<std::string> alternatives(const Place& at, std::string_view keyword);
  Result<std::string> choice_of_values(const Place& at, const Types& types);
  Result<std::string> of_type(const Place& at, std::string_view type);
  Result<std::string> object(const Place& at);
  Result<std::string> members(const std::vector<std::string>& pairs, const std::vector<bool>& required,
                              const std::string& others, uint64_t max_others, bool may_be_empty);
  Result<std::string> other_pair(const Place& at, const Json& properties);
  Result<std::string> array(const Place& at);
  Result<std::string> string(const Place& at);
  Result<std::string> number(const Place& at, bool whole);

  Status check_keywords(const Place& at) const;
  Result<Types> types_of(const Place& at) const;
  Result<uint64_t> count(const Place& at, std::string_view keyword, uint64_t fallback) const;
  Result<const Json*> resolve(const Place& at, const std::string& target) const;
  Result<Json> flat(const Place& at);
  Result<Json> merged(const Json& a, const Json& b, const Place& at);
  Status merge_keyword(Json& into, const std::string& key, const Json& theirs, const Place& at);
  Status merge_properties(Json& into, const Json& other, const Place& at);

  Result<std::string> add_rule(std::string body);
  [[nodiscard]] static Status fail(ErrorCode code, const Place& at, std::string_view message);
  [[nodiscard]] static Status bad(const Place& at, std::string_view message) {
    return fail(ErrorCode::kInvalidArgument, at, message);
  }

  /// No document fits. Where it is one of several alternatives, the others remain.
  [[nodiscard]] static Status nothing(const Place& at, std::string_view message) {
    return fail(kNothingFits, at, message);
  }

  const Json* document_ = nullptr;
  std::vector<std::pair<std::string, std::string>> rules_;  // name, body
  std::unordered_map<std::string, std::string> by_body_;
  std::map<std::string, std::string> references_;  // target in document_ → rule
  size_t n_references_ = 0;                        // in all documents
  std::vector<bool> needed_ = std::vector<bool>(json_rules().size(), false);
  size_t n_merged_nodes_ = 0;
  size_t n_values_ = 0;
};

Status SchemaConverter::fail(ErrorCode code, const Place& at, std::string_view message) {
  return {code, fmt::format("JSON schema, at {}: {}", at.pointer, message)};
}

Result<std::string> SchemaConverter::convert(const Json& document, const std::string& pointer) {
  document_ = &document;
  ASSIGN_OR_RETURN(const Json* schema, resolve({document, "#", 0}, pointer));
  return value({*schema, pointer, 0});
}

std::string SchemaConverter::text() const {
  std::string text;
  for (const auto& [name, body] : rules_) {
    text += name + " ::= " + body + "\n";
  }
  for (size_t i = 0; i < needed_.size(); ++i) {
    if (needed_[i]) {
      text += fmt::format("{} ::= {}\n", json_rules()[i].name, json_rules()[i].body);
    }
  }
  return text;
}

// A rule of the fixed ones, with those it uses.
std::string SchemaConverter::need(std::string_view rule) {
  for (size_t i = 0; i < needed_.size(); ++i) {
    const JsonRule& r = json_rules()[i];
    if (r.name == rule && !needed_[i]) {
      needed_[i] = true;
      for (const std::string_view used : r.uses) {
        need(used);
      }
    }
  }
  return std::string(rule);
}

// Equal bodies share a rule.
Result<std::string> SchemaConverter::add_rule(std::string body) {
  const auto found = by_body_.find(body);
  if (found != by_body_.end()) {
    return found->second;
  }
  if (rules_.size() == kMaxRules) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("JSON schema: it needs more than {} rules; make it smaller", kMaxRules));
  }
  const std::string name = fmt::format("r{}", rules_.size());
  by_body_.emplace(body, name);
  rules_.emplace_back(name, std::move(body));
  return name;
}

// A name or a class, a literal or a group: what may be repeated.
Result<std::string> SchemaConverter::value(const Place& at) {
  if (at.depth > kMaxSchemaDepth) {
    return bad(at, fmt::format("schemas lie more than {} deep in each other", kMaxSchemaDepth));
  }
  if (++n_values_ > kMaxValues) {
    return bad(at, "the schema's alternatives multiply to too many; leave some out");
  }
  if (at.schema.is_boolean()) {
    return at.schema.get<bool>() ? Result<std::string>(need("json-value")) : nothing(at, "false accepts nothing");
  }
  if (!at.schema.is_object()) {
    return bad(at, "a schema is an object, true or false");
  }
  TRY(check_keywords(at));
  if (const auto nullable = at.schema.find("nullable"); nullable != at.schema.end()) {
    Json plain = at.schema;
    plain.erase("nullable");
    ASSIGN_OR_RETURN(const std::string way, value({plain, at.pointer, at.depth + 1}));
    return *nullable == true ? add_rule(way + " | \"null\"") : Result<std::string>(way);
  }
  const auto all = at.schema.find("allOf");
  if (all != at.schema.end() && all->is_array() && all->size() == 1 && !says_more_than(at.schema, "allOf")) {
    return value({(*all)[0], at.pointer + "/allOf/0", at.depth + 1});
  }
  if (all != at.schema.end()) {
    ASSIGN_OR_RETURN(const Json joined, flat(at));
    return value({joined, at.pointer, at.depth + 1});
  }
  if (at.schema.contains("$ref")) {
    return reference(at);
  }
  for (const std::string_view keyword : {"anyOf", "oneOf"}) {
    if (at.schema.contains(keyword)) {
      return alternatives(at, keyword);
    }
  }
  ASSIGN_OR_RETURN(const Types types, types_of(at));
  if (at.schema.contains("enum") || at.schema.contains("const")) {
    return choice_of_values(at, types);
  }
  if (types.empty()) {
    return need("json-value");
  }
  std::string ways;
  for (const std::string_view type : types) {
    ASSIGN_OR_RETURN(const std::string way, of_type(at, type));
    ways += (ways.empty() ? "" : " | ") + way;
  }
  return types.size() == 1 ? Result<std::string>(ways) : add_rule(ways);
}

Status SchemaConverter::check_keywords(const Place& at) const {
  for (const std::string_view keyword : kUnsupported) {
    const auto found = at.schema.find(keyword);
    if (found == at.schema.end() || (keyword == "uniqueItems" && *found == false) ||
        (keyword == "unevaluatedItems" && *found == true) || (keyword == "multipleOf" && *found == 1)) {
      continue;
    }
    if ((keyword == "then" || keyword == "else") && !at.schema.contains("if")) {
      continue;  // means nothing
    }
    return fail(ErrorCode::kUnsupported, at,
                fmt::format("'{}' cannot be enforced by a grammar; remove it, or check documents afterwards", keyword));
  }
  return {};
}

// The types a schema names, or those whose keywords it has; none: any.
Result<SchemaConverter::Types> SchemaConverter::types_of(const Place& at) const {
  Types types;
  const auto named = at.schema.find("type");
  if (named != at.schema.end()) {
    const Json list = named->is_array() ? *named : Json::array({*named});
    for (const Json& name : list) {
      const auto* type = name.is_string() ? std::ranges::find(kTypes, name.get<std::string>()) : std::end(kTypes);
      if (type == std::end(kTypes)) {
        return bad(at, fmt::format("'type' is {}; there are object, array, string, number, integer, boolean and null",
                                   name.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60)));
      }
      types.push_back(*type);
    }
    if (types.empty()) {
      return bad(at, "'type' names no type");
    }
  } else if (has_any(at.schema, kObjectKeys)) {
    types = {"object"};
  } else if (has_any(at.schema, kArrayKeys)) {
    types = {"array"};
  } else if (has_any(at.schema, kStringKeys)) {
    types = {"string"};
  } else if (has_any(at.schema, kNumberKeys)) {
    types = {"number"};
  }
  return types;
}

Result<uint64_t> SchemaConverter::count(const Place& at, std::string_view keyword, uint64_t fallback) const {
  const auto found = at.schema.find(keyword);
  if (found == at.schema.end()) {
    return fallback;
  }
  if (!found->is_number() || !is_whole(*found) || found->get<double>() < 0 || found->get<double>() > 1e15) {
    return bad(at, fmt::format("'{}' is a whole number from 0", keyword));
  }
  return static_cast<uint64_t>(found->get<double>());
}

Result<const Json*> SchemaConverter::resolve(const Place& at, const std::string& target) const {
  if (!target.starts_with('#')) {
    return fail(ErrorCode::kUnsupported, at,
                fmt::format("'$ref' {} leads out of the document; put the schema under $defs", target.substr(0, 100)));
  }
  const Json* found = document_;
  for (size_t begin = 1; begin < target.size();) {
    const size_t end = std::min(target.find('/', begin + 1), target.size());
    std::string name;
    for (size_t i = begin + 1; i < end; ++i) {
      const bool escaped = target[i] == '~' && i + 1 < end && (target[i + 1] == '0' || target[i + 1] == '1');
      name += escaped ? (target[i + 1] == '0' ? '~' : '/') : target[i];
      i += escaped ? 1 : 0;
    }
    if (target[begin] == '/' && found->is_object() && found->contains(name)) {
      found = &found->at(name);
    } else {
      const bool is_index = target[begin] == '/' && found->is_array() && !name.empty() && name.size() < 7 &&
                            name.find_first_not_of("0123456789") == std::string::npos;
      const size_t index = is_index ? std::stoul(name) : 0;
      if (!is_index || index >= found->size()) {
        return bad(at, fmt::format("'$ref' {} leads to nothing", target.substr(0, 100)));
      }
      found = &found->at(index);
    }
    begin = end;
  }
  return found;
}

Result<std::string> SchemaConverter::reference(const Place& at) {
  const Json& ref = at.schema["$ref"];
  if (!ref.is_string()) {
    return bad(at, "'$ref' is a text such as #/$defs/name");
  }
  const auto target = ref.get<std::string>();
  if (says_more_than(at.schema, "$ref")) {
    ASSIGN_OR_RETURN(const Json joined, flat(at));
    return value({joined, at.pointer, at.depth + 1});
  }
  ASSIGN_OR_RETURN(const Json* schema, resolve(at, target));
  const auto [found, is_new] = references_.try_emplace(target, "");
  if (is_new) {
    // The rule's name is known before its body, which may refer to it again.
    const std::string name = fmt::format("ref{}", ++n_references_);
    found->second = name;
    ASSIGN_OR_RETURN(std::string body, value({*schema, target, at.depth + 1}));
    if (body == name) {
      return bad(at, "this '$ref' leads to itself");
    }
    rules_.emplace_back(name, std::move(body));
  }
  return references_[target];
}

Result<std::string> SchemaConverter::alternatives(const Place& at, std::string_view keyword) {
  const Json& list = at.schema[keyword];
  if (!list.is_array() || list.empty()) {
    return bad(at, fmt::format("'{}' is a list of schemas", keyword));
  }
  Json base = at.schema;
  for (const std::string_view key : {keyword, std::string_view("$defs"), std::string_view("definitions")}) {
    base.erase(std::string(key));
  }
  std::string ways;
  Status why;
  for (size_t i = 0; i < list.size(); ++i) {
    const Place here{list[i], at.pointer + fmt::format("/{}/{}", keyword, i), at.depth + 1};
    Result<Json> joined = merged(base, list[i], here);
    Result<std::string> way = joined.ok() ? value({*joined, here.pointer, here.depth}) : joined.status();
    if (way.ok()) {
      ways += (ways.empty() ? "" : " | ") + *way;
    } else if (way.status().code() == kNothingFits) {
      why = way.status();
    } else {
      return way;
    }
  }
  return ways.empty() ? Result<std::string>(why) : add_rule(ways);
}

Result<std::string> SchemaConverter::choice_of_values(const Place& at, const Types& types) {
  Json values = at.schema.contains("enum") ? at.schema["enum"] : Json::array({at.schema["const"]});
  if (!values.is_array() || values.empty()) {
    return bad(at, "'enum' is a list of values");
  }
  std::string ways;
  for (const Json& v : values) {
    const bool fits = types.empty() || std::ranges::any_of(types, [&](auto type) { return fits_type(v, type); });
    if (fits && (!at.schema.contains("const") || v == at.schema["const"])) {
      ways += (ways.empty() ? "" : " | ") + gbnf_literal(v.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
  }
  return ways.empty() ? nothing(at, "none of its values has its type") : add_rule(ways);
}

Result<std::string> SchemaConverter::of_type(const Place& at, std::string_view type) {
  if (type == "object") {
    return object(at);
  }
  if (type == "array") {
    return array(at);
  }
  if (type == "string") {
    return string(at);
  }
  if (type == "number" || type == "integer") {
    return number(at, type == "integer");
  }
  return type == "null" ? std::string("\"null\"") : std::string("(\"true\" | \"false\")");
}

Result<std::string> SchemaConverter::object(const Place& at) {
  const Json none = Json::object();
  const Json properties = at.schema.value("properties", none);
  const Json needed = at.schema.value("required", Json::array());
  const Json rest = at.schema.value("additionalProperties", Json(properties.empty() && needed.empty()));
  if (!properties.is_object() || !needed.is_array()) {
    return bad(at, "'properties' is an object, and 'required' a list of names");
  }
  ASSIGN_OR_RETURN(const uint64_t min, count(at, "minProperties", 0));
  ASSIGN_OR_RETURN(const uint64_t max, count(at, "maxProperties", UINT64_MAX));
  std::vector<std::string> pairs;
  std::vector<bool> required;
  const auto add_pair = [&](const std::string& name, const Json& schema, bool is_required) -> Status {
    if (schema == false && !is_required) {
      return {};
    }
    ASSIGN_OR_RETURN(const std::string body,
                     value({schema, at.pointer + "/properties" + pointer_step(name), at.depth + 1}));
    const std::string key = Json(name).dump(-1, ' ', false, Json::error_handler_t::replace) + ":";
    ASSIGN_OR_RETURN(const std::string pair, add_rule(fmt::format("{} {} {}", gbnf_literal(key), need("ws"), body)));
    pairs.push_back(pair);
    required.push_back(is_required);
    return {};
  };
  std::unordered_set<std::string> needed_names;
  for (const Json& name : needed) {
    if (!name.is_string()) {
      return bad(at, "'required' is a list of names");
    }
    needed_names.insert(name.get<std::string>());
  }
  for (const auto& [name, schema] : properties.items()) {
    TRY(add_pair(name, schema, needed_names.erase(name) > 0));
  }
  Json known = properties;
  for (const Json& name : needed) {  // those left are no properties
    if (needed_names.erase(name.get<std::string>()) > 0) {
      const Json any = true;
      TRY(add_pair(name.get<std::string>(), at.schema.contains("additionalProperties") ? rest : any, true));
      known.push_back({name.get<std::string>(), any});
    }
  }
  const auto n_required = static_cast<uint64_t>(std::ranges::count(required, true));
  std::string others;
  if (rest != false && max > n_required) {
    ASSIGN_OR_RETURN(others, other_pair({rest, at.pointer, at.depth}, known));
  }
  const bool too_few = min > std::max<uint64_t>(n_required, 1);
  const bool too_many = max < pairs.size() || (!others.empty() && max != UINT64_MAX && n_required < pairs.size());
  if (too_few || too_many) {
    return fail(ErrorCode::kUnsupported, at,
                fmt::format("'{}' beside optional properties cannot be enforced; name them in 'required', or remove it",
                            too_few ? "minProperties" : "maxProperties"));
  }
  return members(pairs, required, others, max == UINT64_MAX ? max : max - pairs.size(), min == 0);
}

// pairs in order, each with a comma before it but for the first that is there. tail[i]: what may follow once a pair
// before i was written.
Result<std::string> SchemaConverter::members(const std::vector<std::string>& pairs, const std::vector<bool>& required,
                                             const std::string& others, uint64_t max_others, bool may_be_empty) {
  const std::string ws = need("ws");
  const auto repeat = [&](uint64_t n) {
    return gbnf_repeat(0, n > kMaxRepetitions ? kUnlimited : static_cast<uint32_t>(n));
  };
  const std::string comma = "\",\" " + ws + " ";
  std::vector<std::string> tails(pairs.size() + 1);
  if (!others.empty()) {
    ASSIGN_OR_RETURN(tails.back(), add_rule(fmt::format("({}{}){}", comma, others, repeat(max_others))));
  }
  for (size_t i = pairs.size(); i > 0; --i) {
    const std::string pair = comma + pairs[i - 1];
    const std::string& next = tails[i];
    std::string body = required[i - 1] ? pair : "(" + pair + ")?";
    body += next.empty() ? "" : " " + next;
    ASSIGN_OR_RETURN(tails[i - 1], add_rule(std::move(body)));
  }
  std::string ways;
  bool all_optional = true;
  for (size_t i = 0; i < pairs.size() && all_optional; ++i) {
    ways += fmt::format("{}{} {} {}", ways.empty() ? "" : " | ", pairs[i], tails[i + 1], ws);
    all_optional = !required[i];
  }
  if (all_optional && !others.empty()) {
    ways += fmt::format("{}{} ({}{}){} {}", ways.empty() ? "" : " | ", others, comma, others,
                        repeat(max_others == UINT64_MAX ? max_others : max_others - 1), ws);
  }
  if (ways.empty()) {
    return std::string("\"{}\"");
  }
  return add_rule(fmt::format("\"{{\" {} ({}){} \"}}\"", ws, ways, all_optional && may_be_empty ? "?" : ""));
}

// A pair whose name is none of the properties'.
Result<std::string> SchemaConverter::other_pair(const Place& at, const Json& properties) {
  std::vector<std::string> names;
  size_t n_bytes = 0;
  for (const auto& [name, schema] : properties.items()) {
    n_bytes += name.size();
    const std::string spelled = Json(name).dump(-1, ' ', false, Json::error_handler_t::replace);
    names.push_back(spelled.substr(1, spelled.size() - 2));
  }
  if (n_bytes > kMaxOtherNames) {
    return fail(ErrorCode::kUnsupported, at, "'additionalProperties' beside so many properties; set it to false");
  }
  const std::string key = names.empty() ? need("json-string") : other_name(names, need("json-char"));
  ASSIGN_OR_RETURN(const std::string body, value({at.schema, at.pointer + "/additionalProperties", at.depth + 1}));
  return add_rule(fmt::format("{} \":\" {} {}", key, need("ws"), body));
}

Result<std::string> SchemaConverter::array(const Place& at) {
  Json prefix = at.schema.value("prefixItems", Json::array());
  Json items = at.schema.value("items", Json(true));
  if (items.is_array()) {  // as drafts before 2020-12 have it
    prefix = items;
    items = at.schema.value("additionalItems", Json(true));
  }
  if (!prefix.is_array()) {
    return bad(at, "'prefixItems' is a list of schemas");
  }
  ASSIGN_OR_RETURN(const uint64_t min, count(at, "minItems", 0));
  ASSIGN_OR_RETURN(uint64_t max, count(at, "maxItems", UINT64_MAX));
  const uint64_t n_prefix = std::min<uint64_t>(prefix.size(), max);
  max = items == false ? n_prefix : max;
  if (min > max) {
    return nothing(at, fmt::format("'minItems' asks for {} where at most {} may be", min, max));
  }
  if (min > kMaxRepetitions) {
    return bad(at, fmt::format("'minItems' is above {}", kMaxRepetitions));
  }
  const std::string ws = need("ws");
  std::string row;
  bool ends_with_blank = false;
  for (uint64_t i = 0; i < n_prefix; ++i) {
    ASSIGN_OR_RETURN(const std::string item,
                     value({prefix[i], at.pointer + fmt::format("/prefixItems/{}", i), at.depth + 1}));
    row += (i > 0 ? " \",\" " + ws + " " : "") + item;
  }
  if (max > n_prefix) {
    ASSIGN_OR_RETURN(std::string item, value({items, at.pointer + "/items", at.depth + 1}));
    ASSIGN_OR_RETURN(item, add_rule(item));
    const uint64_t first = n_prefix > 0 ? n_prefix : 1;  // items before those that have a comma
    const auto least = static_cast<uint32_t>(min > first ? min - first : 0);
    const uint32_t most = max - first > kMaxRepetitions ? kUnlimited : static_cast<uint32_t>(max - first);
    const std::string more = most == 0 ? "" : fmt::format(" (\",\" {} {}){}", ws, item, gbnf_repeat(least, most));
    ends_with_blank = n_prefix == 0 && min == 0;
    row = n_prefix > 0 ? row + more : ends_with_blank ? fmt::format("({}{} {})?", item, more, ws) : item + more;
  }
  if (row.empty()) {
    return std::string("\"[]\"");
  }
  return add_rule(fmt::format("\"[\" {} {} {}\"]\"", ws, row, ends_with_blank ? "" : ws + " "));
}

Result<std::string> SchemaConverter::string(const Place& at) {
  ASSIGN_OR_RETURN(const uint64_t min, count(at, "minLength", 0));
  ASSIGN_OR_RETURN(const uint64_t max, count(at, "maxLength", UINT64_MAX));
  if (min > max || min > kMaxRepetitions) {
    return bad(at, fmt::format("'minLength' {} is above 'maxLength' or {}", min, kMaxRepetitions));
  }
  const auto pattern = at.schema.find("pattern");
  if (pattern != at.schema.end()) {
    if (!pattern->is_string()) {
      return bad(at, "'pattern' is a regular expression as text");
    }
    const auto body = pattern_grammar(pattern->get<std::string>(), need("json-char"), {min, max});
    if (!body.ok()) {
      return fail(body.status().code(), at, body.status().message());
    }
    return add_rule(fmt::format("\"\\\"\" {} \"\\\"\"", *body));
  }
  if (min > 0 || max != UINT64_MAX) {
    const uint32_t most = max > kMaxRepetitions ? kUnlimited : static_cast<uint32_t>(max);
    if (most == 0) {
      return std::string("\"\\\"\\\"\"");
    }
    return add_rule(
        fmt::format("\"\\\"\" {}{} \"\\\"\"", need("json-char"), gbnf_repeat(static_cast<uint32_t>(min), most)));
  }
  const auto format = at.schema.find("format");
  if (format != at.schema.end() && format->is_string()) {
    const std::string rule = "format-" + format->get<std::string>();
    if (std::ranges::find(json_rules(), rule, &JsonRule::name) != json_rules().end()) {
      return need(rule);
    }
  }
  return need("json-string");
}

Result<std::string> SchemaConverter::number(const Place& at, bool whole) {
  // The tighter of a bound and its exclusive form; before draft 6 the latter was a truth value.
  const auto bound = [&](const char* plain, const char* strict, bool is_upper) -> Result<std::optional<NumberBound>> {
    std::optional<NumberBound> result;
    double value = 0;
    for (const char* keyword : {plain, strict}) {
      const auto found = at.schema.find(keyword);
      if (found == at.schema.end() || (keyword == strict && found->is_boolean())) {
        continue;
      }
      if (!found->is_number()) {
        return bad(at, fmt::format("'{}' is a number", keyword));
      }
      const auto v = found->get<double>();
      const bool is_tighter = !result || (is_upper ? v < value : v > value) || (v == value && keyword == strict);
      if (!is_tighter) {
        continue;
      }
      if (std::fabs(v) >= 1e16) {
        if ((v > 0) == is_upper) {
          continue;  // no number of ours reaches it
        }
        return bad(at, fmt::format("'{}' leaves no number of at most {} digits", keyword, kMaxNumberDigits));
      }
      std::string decimal = found->is_number_integer() ? found->dump() : fmt::format("{}", v);
      if (decimal.find('e') != std::string::npos) {
        decimal = fmt::format("{:.15f}", v);
      }
      const bool old_strict = at.schema.contains(strict) && at.schema[strict] == true;
      result = NumberBound{decimal, keyword == strict || old_strict};
      value = v;
    }
    return result;
  };
  ASSIGN_OR_RETURN(const std::optional<NumberBound> min, bound("minimum", "exclusiveMinimum", false));
  ASSIGN_OR_RETURN(const std::optional<NumberBound> max, bound("maximum", "exclusiveMaximum", true));
  if (!min && !max) {
    return need(whole ? "json-integer" : "json-number");
  }
  const auto body = number_grammar(min, max, whole);
  if (!body.ok()) {
    return nothing(at, body.status().message());
  }
  return add_rule(*body);
}

// ---- allOf

// The schema with everything that its allOf and, beside other keywords, its $ref say.
Result<Json> SchemaConverter::flat(const Place& at) {
  if (at.depth > kMaxSchemaDepth) {
    return bad(at, "'allOf' and '$ref' join too many schemas; a '$ref' may lead back to itself");
  }
  if (!at.schema.is_object()) {
    return at.schema;
  }
  Json own = at.schema;
  std::vector<std::pair<Json, std::string>> parts;
  if (const auto ref = own.find("$ref"); ref != own.end()) {
    if (!ref->is_string()) {
      return bad(at, "'$ref' is a text such as #/$defs/name");
    }
    const auto target = ref->get<std::string>();
    ASSIGN_OR_RETURN(const Json* schema, resolve(at, target));
    parts.emplace_back(*schema, target);
    own.erase("$ref");
  }
  if (const auto all = own.find("allOf"); all != own.end()) {
    if (!all->is_array()) {
      return bad(at, "'allOf' is a list of schemas");
    }
    for (size_t i = 0; i < all->size(); ++i) {
      parts.emplace_back((*all)[i], at.pointer + fmt::format("/allOf/{}", i));
    }
    own.erase("allOf");
  }
  for (const auto& [schema, pointer] : parts) {
    const Place here{schema, pointer, at.depth + 1};
    ASSIGN_OR_RETURN(own, merged(own, schema, here));
  }
  return own;
}

// A schema for what fits a and b. b may be anything.
Result<Json> SchemaConverter::merged(const Json& a, const Json& b, const Place& at) {
  if (a.is_boolean() || b.is_boolean()) {
    return a == false || b == false ? Json(false) : a.is_boolean() ? b : a;
  }
  if (!a.is_object() || !b.is_object()) {
    return bad(at, "a schema is an object, true or false");
  }
  n_merged_nodes_ += n_nodes(a) + n_nodes(b);
  if (n_merged_nodes_ > kMaxMergedNodes) {
    return bad(at, "'allOf', 'anyOf' and '$ref' join too much; put less beside them");
  }
  if (a.empty()) {
    return b;
  }
  Json result = a;
  const bool needs_flat = b.contains("$ref") || b.contains("allOf");
  Json other = b;
  if (needs_flat) {
    ASSIGN_OR_RETURN(other, flat({b, at.pointer, at.depth}));
  }
  if (!other.is_object()) {
    return other;
  }
  TRY(check_keywords({other, at.pointer, at.depth}));
  if (has_any(other, kObjectKeys) || has_any(result, kObjectKeys)) {
    TRY(merge_properties(result, other, at));
  }
  for (const auto& [key, theirs] : other.items()) {
    if (std::ranges::find(kPropertyKeys, key) == std::end(kPropertyKeys)) {
      TRY(merge_keyword(result, key, theirs, at));
    }
  }
  return result;
}

Status SchemaConverter::merge_keyword(Json& into, const std::string& key, const Json& theirs, const Place& at) {
  const auto mine = into.find(key);
  if (mine == into.end()) {
    into[key] = theirs;
    return {};
  }
  if (*mine == theirs) {
    return {};
  }
  const auto join_lists = [](const Json& a, const Json& b) {
    const auto as_list = [](const Json& v) { return v.is_array() ? v : Json::array({v}); };
    const Json list = as_list(b);
    Json common = Json::array();
    for (const Json& v : as_list(a)) {
      if (std::ranges::find(list, v) != list.end()) {
        common.push_back(v);
      }
    }
    return common;
  };
  if (key == "type" || key == "enum") {
    if (mine->size() * theirs.size() > kMaxMergedNodes) {
      return bad(at, fmt::format("'{}' stands twice in one 'allOf' with too many values", key));
    }
    Json common = join_lists(*mine, theirs);
    if (key == "type" && common.empty()) {  // an integer is a number, too
      const Json integer = "integer";
      const Json number = "number";
      const bool narrows = (*mine == integer && theirs == number) || (*mine == number && theirs == integer);
      common = narrows ? Json::array({integer}) : common;
    }
    if (common.empty()) {
      return nothing(at, fmt::format("'{}' contradicts the other of its 'allOf'", key));
    }
    *mine = common;
  } else if (key.starts_with("min") || key == "exclusiveMinimum") {
    *mine = theirs.is_number() && mine->is_number() && theirs > *mine ? theirs : *mine;
  } else if (key.starts_with("max") || key == "exclusiveMaximum") {
    *mine = theirs.is_number() && mine->is_number() && theirs < *mine ? theirs : *mine;
  } else if (key == "items") {
    *mine = Json{{"allOf", Json::array({*mine, theirs})}};
  } else if (key == "const") {
    return nothing(at, "'const' contradicts the other of its 'allOf'");
  } else if (key == "pattern" || key == "anyOf" || key == "oneOf" || key == "prefixItems") {
    return fail(ErrorCode::kUnsupported, at,
                fmt::format("'{}' stands in two schemas of one 'allOf'; write their common part yourself", key));
  }
  return {};  // annotations: the first stays
}

// Names that one side does not know are what its additionalProperties says.
Status SchemaConverter::merge_properties(Json& into, const Json& other, const Place& at) {
  const Json none = Json::object();
  const auto known = [&](const Json& s) { return s.value("properties", none); };
  const auto rest = [](const Json& s) { return s.value("additionalProperties", Json(true)); };
  const Json mine = known(into);
  const Json theirs = known(other);
  if (!mine.is_object() || !theirs.is_object()) {
    return bad(at, "'properties' is an object");
  }
  const auto both = [](const Json& a, const Json& b) {
    return a == false || b == false ? Json(false)
           : a == true || a == b    ? b
           : b == true              ? a
                                    : Json{{"allOf", Json::array({a, b})}};
  };
  const auto my_names = names_in(mine);
  const auto their_names = names_in(theirs);
  if (my_names.size() * their_names.size() > kMaxMergedNodes) {
    return bad(at, "'properties' stands twice in one 'allOf' with too many names");
  }
  Json all = Json::object();
  for (const auto& [name, schema] : mine.items()) {
    all.push_back({name, both(schema, their_names.contains(name) ? theirs[name] : rest(other))});
  }
  for (const auto& [name, schema] : theirs.items()) {
    if (!my_names.contains(name)) {
      all.push_back({name, both(rest(into), schema)});
    }
  }
  const bool limits = into.contains("additionalProperties") || other.contains("additionalProperties");
  const Json others = both(rest(into), rest(other));
  if (!all.empty()) {
    into["properties"] = all;
  }
  if (limits) {
    into["additionalProperties"] = others;
  }
  Json required = into.value("required", Json::array());
  for (const Json& name : other.value("required", Json::array())) {
    required.push_back(name);  // twice does no harm
  }
  if (!required.empty()) {
    into["required"] = required;
  }
  return {};
}

}  // namespace

struct JsonSchemaRules::Impl {
  std::string schema;
  Json document;
  SchemaConverter converter;
};

JsonSchemaRules::JsonSchemaRules() : impl_(std::make_unique<Impl>()) {}
JsonSchemaRules::~JsonSchemaRules() = default;

Result<std::string> JsonSchemaRules::add(std::string_view schema, const std::string& pointer) {
  if (schema.size() > kMaxSchemaBytes) {
    return Status(
        ErrorCode::kInvalidArgument,
        fmt::format("the JSON schema has {} bytes, more than {}; make it smaller", schema.size(), kMaxSchemaBytes));
  }
  TRY(check_json_limits(schema, {kMaxSchemaDepth, kMaxMembers}).with_context("JSON schema"));
  if (impl_->document.is_null() || impl_->schema != schema) {
    Json document;
    try {
      document = Json::parse(schema);
    } catch (const Json::exception& error) {
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("the JSON schema is no JSON text: {}", json_error_reason(error.what())));
    }
    impl_->schema = schema;
    impl_->document = std::move(document);
    impl_->converter.forget_document();
  }
  Result<std::string> expression = impl_->converter.convert(impl_->document, pointer);
  if (!expression.ok() && expression.status().code() == kNothingFits) {
    return Status(ErrorCode::kInvalidArgument, expression.status().message());
  }
  return expression;
}

std::string JsonSchemaRules::add_any(std::string_view kind) {
  return impl_->converter.need(fmt::format("json-{}", kind));
}

std::string JsonSchemaRules::text() const {
  return impl_->converter.text();
}

Result<std::string> json_schema_grammar(std::string_view schema) {
  JsonSchemaRules rules;
  ASSIGN_OR_RETURN(const std::string root, rules.add(schema));
  return "root ::= " + root + "\n" + rules.text();
}

}  // namespace tessera
